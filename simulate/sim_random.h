#ifndef RESEAT_SIMULATE_SIM_RANDOM_H
#define RESEAT_SIMULATE_SIM_RANDOM_H

#include <math.h>
#include <stdint.h>

/* Numbers that look random and are the same for the same seed, on every machine. */

/** The finalizer of splitmix64 (Steele, Lea, Flood 2014). */
static inline uint64_t sim_mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15ull;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
}

/** The @index-th number of the stream @stream of @seed. */
static inline uint64_t sim_random(uint64_t seed, uint64_t stream, uint64_t index)
{
    return sim_mix(sim_mix(sim_mix(seed) ^ stream) ^ index);
}

/** Above 0, at most 1. */
static inline double sim_unit(uint64_t number)
{
    return ((double)(number >> 11) + 1) * 0x1p-53;
}

/** Of the exponential distribution with mean 1. */
static inline double sim_exponential(uint64_t number)
{
    return -log(sim_unit(number));
}

#endif
