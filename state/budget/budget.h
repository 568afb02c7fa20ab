#ifndef RESEAT_STATE_BUDGET_BUDGET_H
#define RESEAT_STATE_BUDGET_BUDGET_H

#include "state/command/command.h"
#include "state/object/upcalls.h"

/*
 * Room on a device. Exceeding the grant or the device's memory is no error yet: the policy is
 * asked, which may grant more, move the program, have it spill, or refuse.
 *
 * Spilling keeps on the device what each command needs and the rest in host memory, least recently
 * used first; a command that names a spilled object has it brought back (bring.c).
 */

/** What the policy is asked. */
struct budget_need {
    uint32_t vdev;   /**< The first virtual device on that device. */
    uint64_t total;  /**< Bytes that the program must be able to hold there. */
    uint64_t least;  /**< Bytes that one command needs at once. */
    uint64_t wanted; /**< Bytes that the program has there and spilled. */
    bool owns;       /**< The objects exist already: a command needs them there. */
    bool failed;     /**< The grant is not exceeded, but the device itself had no more. */
};

/**
 * Have @ask decide; NULL (at first): no policy. @ask is called outside the gate and every lock by
 * the thread that needs room, and may block it as long as needed.
 */
void budget_set_policy(enum budget_answer (*ask)(const struct budget_need *need));

/** upcalls.h: ask_for_budget and bring. */
enum budget_answer budget_ask(struct device *device, uint64_t size, uint64_t least, bool owns,
                              cl_int reason);
cl_int command_bring(struct command *command);

/** True while a thread brings bytes for a command: background copies pause then. Wait-free. */
bool budget_is_brought(void);
/** Between these two calls nothing is copied for commands: both sides use the io queues of the same
 * residences, and not every driver allows two threads in one queue. A caller that also closes the
 * gate does so first. */
void budget_copy_begin(void);
void budget_copy_end(void);

/** Grant @bytes more on the device of @vdev. The first grant makes it limited. */
void budget_grant(uint32_t vdev, uint64_t bytes);
/** Raise the limit of @device by @bytes without asking: the agent sees that, and takes them back
 * when it can. */
void budget_exceed(struct device *device, uint64_t bytes);
/**
 * Reduce the grant on the device of @vdev to @bytes, spilling what exceeds it. Blocks on the device
 * and the link; outside the gate. Returns by how many bytes the limit was reduced, which may be
 * fewer than asked: SVM, and what a command needs, stay.
 */
uint64_t budget_shrink(uint32_t vdev, uint64_t bytes);
/** Give up unused grant; returns how much. */
uint64_t budget_slack(uint32_t vdev);

struct budget_use {
    uint64_t held, peak, spilled; /**< As in the device's budget. */
    uint64_t granted;             /**< Granted to this virtual device; 0 while unlimited. */
    bool limited;
    uint64_t wanted; /**< All live bytes of the virtual device's contexts. */
    uint64_t least;  /**< Bytes that its largest command needs. */
};
/** Read the use of @vdev's device; the budget's fields are 0 if a virtual device with a lower index
 * shares the device. Of a suspended one: what it would want. */
void budget_read(uint32_t vdev, struct budget_use *ret_use);

/*
 * For command_bring, with the gate closed.
 */

/**
 * Spill objects that nothing of @command names until @bytes are free on the device of @residence.
 * Drains it. Returns the bytes that were freed; 0: there is nothing to spill.
 *
 * @ret_later  A mover holds objects that could be spilled otherwise: call move_await.
 */
uint64_t budget_make(struct residence *residence, uint64_t bytes, const struct command *command,
                     bool *ret_later);
/** Bytes that @command needs at once; marks its objects as used last. */
uint64_t budget_least(const struct command *command);

/**
 * If a protected program's latest bytes are nowhere any more, because a source it left on demand
 * was lost: declare its present device lost too, once its commands have ended, so that the program
 * is recovered. Returns whether it did. Outside the gate, which is closed meanwhile.
 */
bool budget_find_data_lost(void);

/** A move prepares @device, where it may use @grant bytes. budget_unreserve: the move failed. */
void budget_reserve(struct device *device, uint64_t grant);
void budget_unreserve(void);
/**
 * @vdev is on @to from now on (NULL: on none), where it may have @grant bytes (NULL: no limit).
 * Gate closed.
 */
void budget_arrive(struct vdev *vdev, struct device *to, const uint64_t *grant);

#endif
