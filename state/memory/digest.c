#include "state/memory/digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "state/base/clock.h"
#include "state/base/threads/thread.h"
#include "state/transfer/transfer_priv.h"

#define STACK   ((size_t)1 << 20)
#define BLOCK   ((size_t)16) /* chunks that one thread takes at a time */
#define THREADS 16           /* with more, memory is not read faster */
#define SAMPLE  ((size_t)4 << 20)
/* A run of so many bytes is long enough to measure all cores, with their threads' start. */
#define LONG ((size_t)256 << 20)
#define RANDOM_MAX                                                                                 \
    ((size_t)256) /* bytes that getrandom() gives at once, whatever interrupts it                  \
                   */

static bool digest_fill(unsigned char *bytes, size_t size)
{
    for (size_t at = 0; at < size; at += RANDOM_MAX) {
        size_t count = size - at < RANDOM_MAX ? size - at : RANDOM_MAX;
        if (getrandom(bytes + at, count, GRND_NONBLOCK) != (ssize_t)count)
            return false;
    }
    return true;
}

const uint64_t *digest_key(void)
{
    static uint64_t *_Atomic the_key;
    uint64_t *key = atomic_load(&the_key), *none = NULL;
    if (key)
        return key;
    key = malloc(DIGEST_KEY * sizeof(*key));
    if (key && !digest_fill((unsigned char *)key, DIGEST_KEY * sizeof(*key))) {
        free(key);
        key = NULL;
    }
    /* Two threads may come here at once: one key stays. */
    if (key && !atomic_compare_exchange_strong(&the_key, &none, key)) {
        free(key);
        key = none;
    }
    return key;
}

/* A pair is one word of 64 bits here: the order of its halves does not change their product. */
static void digest_sum_pairs(const uint64_t *key, const char *bytes, size_t pairs, uint64_t *sums)
{
    for (size_t i = 0; i < pairs; i++) {
        uint64_t pair;
        memcpy(&pair, bytes + i * sizeof(pair), sizeof(pair));
        for (size_t t = 0; t < DIGEST_SUMS; t++) {
            uint32_t low = (uint32_t)pair + (uint32_t)key[i + t];
            uint32_t high = (uint32_t)(pair >> 32) + (uint32_t)(key[i + t] >> 32);
            sums[t] += (uint64_t)low * high;
        }
    }
}

#if defined(__x86_64__)
/* The same, four pairs at a time. */
__attribute__((target("avx2"))) static void
digest_sum_pairs_avx2(const uint64_t *key, const char *bytes, size_t pairs, uint64_t *sums)
{
    enum { LANES = 4 };
    __m256i four[DIGEST_SUMS] = {{0}};
    size_t whole = pairs - pairs % LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        __m256i pair = _mm256_loadu_si256((const __m256i *)(const void *)(bytes + i * 8));
        for (size_t t = 0; t < DIGEST_SUMS; t++) {
            __m256i part = _mm256_loadu_si256((const __m256i *)(const void *)(key + i + t));
            part = _mm256_add_epi32(part, pair);
            part = _mm256_mul_epu32(part, _mm256_srli_epi64(part, 32));
            four[t] = _mm256_add_epi64(four[t], part);
        }
    }
    for (size_t t = 0; t < DIGEST_SUMS; t++) {
        uint64_t lanes[LANES];
        memcpy(lanes, &four[t], sizeof(lanes));
        sums[t] += lanes[0] + lanes[1] + lanes[2] + lanes[3];
    }
    digest_sum_pairs(key + whole, bytes + whole * 8, pairs - whole, sums);
}
#endif

static uint64_t digest_bytes_a_second(size_t bytes, uint64_t ns)
{
    return (uint64_t)((double)bytes * (double)NS_PER_S / (double)(ns + 1)) + 1;
}

typedef void (*summing)(const uint64_t *key, const char *bytes, size_t pairs, uint64_t *sums);

static summing digest_summing_here(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return digest_sum_pairs_avx2;
#endif
    return digest_sum_pairs;
}

static struct digest digest_fold(const uint64_t *key, const uint64_t *sums)
{
    uint32_t out[4];
    for (unsigned i = 0; i < 4; i++) {
        uint64_t sum = *key++;
        for (unsigned t = 0; t < DIGEST_SUMS; t++) {
            sum += *key++ * (uint32_t)sums[t];
            sum += *key++ * (sums[t] >> 32);
        }
        out[i] = (uint32_t)(sum >> 32);
    }
    return (struct digest){{out[0] | (uint64_t)out[1] << 32, out[2] | (uint64_t)out[3] << 32}};
}

/* The last pair of a short chunk is completed with zeroes. */
static struct digest digest_chunk(const uint64_t *key, summing sum, const char *bytes, size_t size)
{
    uint64_t sums[DIGEST_SUMS] = {0};
    size_t pairs = size / 8, rest = size % 8;
    sum(key, bytes, pairs, sums);
    if (rest != 0) {
        char last[8] = {0};
        memcpy(last, bytes + pairs * 8, rest);
        digest_sum_pairs(key + pairs, last, 1, sums);
    }
    return digest_fold(key + DIGEST_KEY_PAIRS, sums);
}

int digest_check(const struct transfer_limits *limits)
{
    if (limits && limits->cancel && atomic_load(limits->cancel))
        return -ECANCELED;
    if (limits && limits->deadline_ns != 0 && clock_now_ns() >= limits->deadline_ns)
        return -ETIMEDOUT;
    return 0;
}

/* A thread takes one run at a time: of a list of runs, or a block of a single range. */
struct job {
    const uint64_t *key;
    summing sum;
    const struct digest_run *runs; /* NULL: the blocks of... */
    struct digest_run whole;       /* ...this */
    size_t count;                  /* of runs */
    const struct transfer_limits *limits;
    _Atomic size_t next;
    _Atomic int error;
};

static struct digest_run digest_run_at(const struct job *job, size_t at)
{
    if (job->runs)
        return job->runs[at];
    const size_t begin = at * BLOCK * DIGEST_CHUNK, left = job->whole.size - begin;
    return (struct digest_run){job->whole.bytes + begin,
                               left < BLOCK * DIGEST_CHUNK ? left : BLOCK * DIGEST_CHUNK,
                               job->whole.ret + at * BLOCK};
}

static void *digest_job_run(void *data)
{
    struct job *job = data;
    size_t at;
    while ((at = atomic_fetch_add(&job->next, 1)) < job->count && atomic_load(&job->error) == 0) {
        const struct digest_run run = digest_run_at(job, at);
        int error = digest_check(job->limits);
        if (error != 0)
            atomic_store(&job->error, error);
        for (size_t begin = 0; begin < run.size && error == 0; begin += DIGEST_CHUNK) {
            size_t left = run.size - begin;
            run.ret[begin / DIGEST_CHUNK] = digest_chunk(job->key, job->sum, run.bytes + begin,
                                                         left < DIGEST_CHUNK ? left : DIGEST_CHUNK);
        }
    }
    return NULL;
}

static unsigned digest_threads_here(void)
{
    unsigned cores = host_cores();
    return cores < THREADS ? cores : THREADS;
}

static int digest_job_do(struct job *job)
{
    pthread_t others[THREADS];
    unsigned started = 0, cores = digest_threads_here();
    job->key = digest_key();
    job->sum = digest_summing_here();
    if (!job->key)
        return -ENOTSUP;
    while (started + 1 < cores && started + 1 < job->count &&
           thread_start("reseat-digest", STACK, digest_job_run, job, &others[started]) == 0)
        started++;
    digest_job_run(job);
    while (started > 0)
        pthread_join(others[--started], NULL);
    return atomic_load(&job->error);
}

/* Bytes a second of all cores, in the best long run, as other processes may slow some. 0: there was
 * none. */
static _Atomic uint64_t best_rate;

int digest_host(const char *bytes, size_t size, size_t first, size_t count,
                const struct transfer_limits *limits, struct digest *ret)
{
    const size_t begin = first * DIGEST_CHUNK, end = begin + count * DIGEST_CHUNK;
    struct job job = {.whole = {bytes + begin, (end < size ? end : size) - begin, ret},
                      .count = (count + BLOCK - 1) / BLOCK,
                      .limits = limits};
    const uint64_t began = clock_now_ns();
    int error = digest_job_do(&job);
    if (error == 0 && job.whole.size >= LONG)
        mark_raise(&best_rate, digest_bytes_a_second(job.whole.size, clock_now_ns() - began));
    return error;
}

int digest_runs(const struct digest_run *runs, size_t count, const struct transfer_limits *limits)
{
    struct job job = {.runs = runs, .count = count, .limits = limits};
    return digest_job_do(&job);
}

/* An estimate for before the first long run: the rate of one core, times the number of cores. */
static uint64_t digest_guess_rate(void)
{
    struct digest digests[SAMPLE / DIGEST_CHUNK];
    struct job job = {
        .key = digest_key(), .sum = digest_summing_here(), .count = SAMPLE / DIGEST_CHUNK / BLOCK};
    char *bytes = job.key ? malloc(SAMPLE) : NULL;
    uint64_t rate = 0;
    if (bytes) {
        memset(bytes, 1, SAMPLE);
        job.whole = (struct digest_run){bytes, SAMPLE, digests};
        const uint64_t began = clock_now_ns();
        digest_job_run(&job);
        rate = digest_threads_here() * digest_bytes_a_second(SAMPLE, clock_now_ns() - began);
    }
    free(bytes);
    return rate;
}

double digest_host_rate(void)
{
    static _Atomic uint64_t guess; /* 0: not made */
    if (atomic_load(&best_rate) != 0)
        return (double)atomic_load(&best_rate);
    if (atomic_load(&guess) == 0)
        atomic_store(&guess, digest_guess_rate());
    return (double)atomic_load(&guess);
}
