#ifndef RESEAT_TESTS_POLICY_POLICY_WORLD_H
#define RESEAT_TESTS_POLICY_POLICY_WORLD_H

#include "policy/decide.h"
#include "policy/reseat.h"
#include "policy/settings.h"
#include "policy/visits.h"

/*
 * A world that does what the policy says, and objects to what it must not say: every step is
 * checked against sums made here from the programs alone.
 */

#define WORLD_DEVICES  6
#define WORLD_PROGRAMS 24
#define MIB            (UINT64_C(1) << 20)

struct world {
    struct policy_world world;
    struct policy_settings settings;
    struct policy_device devices[WORLD_DEVICES];
    struct policy_program programs[WORLD_PROGRAMS];
    uint64_t barred[WORLD_PROGRAMS];
    struct policy_visits visits[WORLD_PROGRAMS];
    struct reseat_limits has[WORLD_DEVICES], prefers[WORLD_PROGRAMS];
    struct policy_step promises[WORLD_PROGRAMS]; /* Steps under way: where memory is kept. */
    uint32_t queue[WORLD_PROGRAMS];
    char names[WORLD_DEVICES + WORLD_PROGRAMS][8];
    uint64_t ticket;    /* The last one given. */
    bool scales;        /* A program keeps a faster device less busy. */
    uint64_t random;    /* State. */
    uint32_t moved;     /* Programs, by steps. */
    uint32_t suspended; /* Programs, by steps. */
};

/* Default settings, no devices, no programs. @seed  Of world_random. */
void world_init(struct world *world, uint64_t seed);
/* Memory in MiB; speed and price 1000. */
struct policy_device *world_add_device(struct world *world, uint64_t memory);
/* Runs on @device with so many MiB granted, wanted and needed at once; all ways. POLICY_NONE:
 * suspended, and queues. */
struct policy_program *world_add_program(struct world *world, uint32_t device, uint64_t wanted);
/* Its call needs so many MiB more, all of them counted in what it wants. */
void world_ask(struct world *world, struct policy_program *program, uint64_t more);
void world_end(struct world *world, struct policy_program *program);
/* Sums, lists and the queue, from the programs: after every change made by hand. */
void world_refresh(struct world *world);
uint32_t world_id(const struct world *world, const struct policy_program *program);

/* Keep what @step takes on its device until it is carried out; a step of no kind keeps nothing. */
void world_promise(struct world *world, const struct policy_step *step);
/* Check @step against the rules, then carry it out. */
void world_do(struct world *world, const struct policy_step *step);
/* policy_next until there is nothing to do, and it has to be within @limit steps. Returns the
 * count. */
unsigned world_settle(struct world *world, unsigned limit);
/* Time passes for everyone. */
void world_pass(struct world *world, uint64_t seconds);

/* It prefers that: @prefers has memory in MiB. */
void world_prefer(struct world *world, struct policy_program *program,
                  const struct reseat_limits *prefers);
/* Devices offer more or less, and some programs prefer more than theirs has. */
void world_random_wishes(struct world *world, unsigned percent);

uint64_t world_random(struct world *world, uint64_t below);
bool world_chance(struct world *world, unsigned percent);

#endif
