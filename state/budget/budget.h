#ifndef RESEAT_STATE_BUDGET_BUDGET_H
#define RESEAT_STATE_BUDGET_BUDGET_H

#include "state/command/command.h"
#include "state/object/upcalls.h"

/*
 * Room on a device. What does not fit (more than the program was granted, or more than the device
 * has: DESIGN.md) is no error yet: it goes to the policy, which may grant more, move the program,
 * have it spill, or refuse.
 *
 * Spilling keeps on the device what each command needs and the rest in host memory, least recently
 * used out first; a command that names what is not there has it brought back (bring.c).
 */

/** What the policy is asked. */
struct budget_need {
    uint32_t vdev;   /**< The first on that device. */
    uint64_t total;  /**< Bytes that it must be able to hold there. */
    uint64_t least;  /**< What one command needs at once. */
    uint64_t wanted; /**< All that the program has there and spilled. */
    bool owns;       /**< It has all of them already: a command needs them there. */
    bool failed;     /**< It is within the limit: the device itself had no more. */
};

/**
 * Have @ask decide; NULL (at first): nobody does. It is called outside the gate and every lock by
 * the thread that needs room, and may block it for as long as it takes.
 */
void budget_set_policy(enum budget_answer (*ask)(const struct budget_need *need));

/** upcalls.h: ask_for_budget and bring. */
enum budget_answer budget_ask(struct device *device, uint64_t size, uint64_t least, bool owns,
                              cl_int reason);
cl_int command_bring(struct command *command);

/** True while a command is brought what it names: who copies in the background stands back.
 * Wait-free. */
bool budget_is_brought(void);
/** Between these nothing is copied for a command: both use the io queues of the same residences,
 * and not every driver stands two threads in one queue. Who closes the gate as well does so first.
 */
void budget_copy_begin(void);
void budget_copy_end(void);

/** The program may have @bytes more on the device of @vdev. The first one makes it limited. */
void budget_grant(uint32_t vdev, uint64_t bytes);
/** It takes @bytes more on @device itself: the agent sees that, and has them back when it can. */
void budget_exceed(struct device *device, uint64_t bytes);
/**
 * Keep to @bytes on the device of @vdev, spilling what is too much. Blocks on the device and the
 * link; outside the gate. Returns how many bytes of its limit the program gave up, which may be
 * fewer: what is in SVM stays, and what a command needs.
 */
uint64_t budget_shrink(uint32_t vdev, uint64_t bytes);
/** Give up what was granted and is not needed; returns how much. */
uint64_t budget_slack(uint32_t vdev);

struct budget_use {
    uint64_t held, peak, spilled; /**< Of the budget. */
    uint64_t granted;             /**< Of the virtual device alone; 0 while nobody said. */
    bool limited;
    uint64_t wanted; /**< All live bytes of the virtual device's contexts. */
    uint64_t least;  /**< What its largest command needs. */
};
/** Of the device of @vdev; what is the budget's is 0 for a virtual device that shares it with one
 * before. Of a suspended one, what it would want. */
void budget_read(uint32_t vdev, struct budget_use *ret_use);

/*
 * For command_bring, with the gate closed.
 */

/**
 * Spill objects that nothing of @command names until @bytes are free on the device of @residence.
 * Drains it. Returns the bytes that were freed; 0: there is nothing to spill.
 *
 * @ret_later  A mover has some that could go otherwise: move_await.
 */
uint64_t budget_make(struct residence *residence, uint64_t bytes, const struct command *command,
                     bool *ret_later);
/** What @command needs at once; marks it as used last. */
uint64_t budget_least(const struct command *command);

/**
 * Where a protected program's latest bytes are nowhere any more, as a device is lost that it left
 * on demand: have the one where it is count as lost too, once what that was given has ended, so
 * that the program is recovered. True: so it is. Gate closed.
 */
bool budget_lose_data_lost(void);
/** The same for who is not inside the gate, and does not have it closed. */
bool budget_find_data_lost(void);

/** A move prepares @device, where it may use @grant; and it failed, or the program is there. */
void budget_reserve(struct device *device, uint64_t grant);
void budget_unreserve(void);
/**
 * @vdev is on @to from now on (NULL: on none), where it may have @grant bytes (NULL: nobody said).
 * Gate closed.
 */
void budget_arrive(struct vdev *vdev, struct device *to, const uint64_t *grant);

#endif
