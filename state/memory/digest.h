#ifndef RESEAT_STATE_MEMORY_DIGEST_H
#define RESEAT_STATE_MEMORY_DIGEST_H

#include "state/transfer/transfer.h"

/*
 * Digests: 128 bits for each chunk of a buffer's bytes, which two replicas compare instead of the
 * bytes themselves. A device and the host's cores give the same digest for the same bytes, each at
 * about the speed of its memory.
 *
 * The function is NH of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC: Fast and Secure
 * Message Authentication", CRYPTO 1999; RFC 4418): the chunk is pairs of 32-bit words, to each word
 * one of the key is added modulo 2^32, and the 64-bit products of the pairs are summed modulo 2^64.
 * Four such sums are taken, each with the key shifted on by one pair (their Toeplitz construction).
 * The sum does not ask for an order, so that work-items and cores of any number give the same. Two
 * different chunks of one size have the same four sums for at most 2^-128 of all keys. The eight
 * words of the sums then become four through Lemire and Kaser's MULTILINEAR ("Strongly Universal
 * String Hashing is Fast", 2014), which adds as much again: at most 2^-127 for a pair of chunks.
 *
 * The key is as long as a chunk, random, and a process's own, and no digest leaves the process: so
 * the bound holds for each pair of chunks that a program, which never sees either, can make.
 */

#define DIGEST_CHUNK ((size_t)64 << 10) /**< Bytes. The last chunk of a buffer may be shorter. */
#define DIGEST_PAIRS (DIGEST_CHUNK / 8)
#define DIGEST_SUMS  4
/** Words of 64 bits that the key has: for the pairs with their shifts, then for the eight words. */
#define DIGEST_KEY_PAIRS (DIGEST_PAIRS + DIGEST_SUMS - 1)
#define DIGEST_KEY_FOLD  (4 * (2 * DIGEST_SUMS + 1))
#define DIGEST_KEY       (DIGEST_KEY_PAIRS + DIGEST_KEY_FOLD)

struct digest {
    uint64_t word[2]; /**< Both 0: not known. */
};

static inline bool digest_is_known(const struct digest *digest)
{
    return (digest->word[0] | digest->word[1]) != 0;
}

/** True when both are known, and those of equal bytes. */
static inline bool digest_same(const struct digest *a, const struct digest *b)
{
    return digest_is_known(a) && a->word[0] == b->word[0] && a->word[1] == b->word[1];
}

/** Chunks of @size bytes. */
static inline size_t digest_chunks(size_t size)
{
    return size / DIGEST_CHUNK + (size % DIGEST_CHUNK != 0);
}

/** The process's key, of DIGEST_KEY words; NULL: there are no random numbers, or no memory.
 * Thread-safe. */
const uint64_t *digest_key(void);

/**
 * Digest chunks [@first, @first + @count) of the @size bytes at @bytes, of which chunk 0 is the
 * first. Uses as many cores as help. The digest of a chunk that is written meanwhile is undefined.
 *
 * Blocks. Thread-safe. Returns 0, -ENOTSUP (digest_key), -ETIMEDOUT or -ECANCELED.
 *
 * @limits  Deadline and cancellation; NULL: none.
 */
MUST_CHECK int digest_host(const char *bytes, size_t size, size_t first, size_t count,
                           const struct transfer_limits *limits, struct digest *ret);
/** Bytes of host memory, and where the digests of their chunks go. Only the last chunk may be
 * short. */
struct digest_run {
    const char *bytes;
    size_t size;
    struct digest *ret;
};
/** The same for several runs of bytes; one core digests each run. */
MUST_CHECK int digest_runs(const struct digest_run *runs, size_t count,
                           const struct transfer_limits *limits);
/** The same for @real, a buffer of @residence that kernels may read. The device digests it after
 * the commands that are in its io queue.
 *
 * Blocks on the device; the first time on a build as well. Thread-safe. Returns also -ENOTSUP: the
 * device has no compiler or another byte order than the host, another thread uses it for digests,
 * or its driver has failed, after which it is not used for digests again.
 */
MUST_CHECK int digest_device(struct residence *residence, cl_mem real, size_t size, size_t first,
                             size_t count, const struct transfer_limits *limits,
                             struct digest *ret);

/** Check @limits, which may be NULL: 0, -ETIMEDOUT or -ECANCELED. */
int digest_check(const struct transfer_limits *limits);

/** Bytes a second that the host's cores digest: the best rate of a long run; before there was one,
 * an estimate from one core, which the first call measures for a few ms. 0: they cannot digest.
 *  Thread-safe. */
double digest_host_rate(void);
/** The same for the device of @residence; 0: not measured, or it cannot digest. Wait-free. */
double digest_device_rate(struct residence *residence);
/** False when @residence will never digest. Wait-free. */
bool digest_device_may(const struct residence *residence);
/** Build the digest kernel in @residence and measure it on some MiB of @real, which has @size
 * bytes, unless that was done before. Blocks on the device. False as digest_device_may. */
bool digest_device_begin(struct residence *residence, cl_mem real, size_t size);
/** Estimated seconds for building the kernel, rather too many than too few; 0 once it is built. */
double digest_device_build(const struct residence *residence);

#endif
