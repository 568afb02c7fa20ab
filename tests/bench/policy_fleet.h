#ifndef RESEAT_TESTS_BENCH_POLICY_FLEET_H
#define RESEAT_TESTS_BENCH_POLICY_FLEET_H

#include "policy/reseat.h"
#include "policy/settings.h"

/* Large worlds for the policy, of kinds that make it work. The same each time. */

struct fleet {
    struct policy_world world;
    struct policy_settings settings;
    struct policy_device *devices;
    struct policy_program *programs;
    uint32_t *queue;
    char (*names)[16];
    struct reseat_limits *has, *prefers;
    uint64_t *barred; /* So many words a program as there are for all devices. */
    size_t words;
};

struct scene {
    const char *name;
    unsigned queued_percent; /* Of the programs, on no device. */
    unsigned fill_percent;   /* Of the devices' memory. */
    unsigned ways;
    uint32_t busy;                      /* Thousandths that a program keeps its device busy, at
                                           most. */
    void (*twist)(struct fleet *fleet); /* What is special about it; may be NULL. */
};

extern const struct scene fleet_scenes[];
extern const size_t fleet_scene_count;

/* 0 or -1: no memory, or a world of nothing. */
int fleet_init(struct fleet *fleet, uint32_t devices, uint32_t programs);
void fleet_finish(struct fleet *fleet);
/* A new world of @scene's kind. */
void fleet_fill(struct fleet *fleet, const struct scene *scene);
/* As a step says; false where there is none. */
bool fleet_do(struct fleet *fleet, const struct policy_step *step);
uint64_t fleet_random(uint64_t below);

#endif
