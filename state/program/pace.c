#include "state/program/pace.h"

#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/bytes/hex.h"
#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/program/program_priv.h"
#include "state/recipe/recipe.h"

#define BACKOFF_MAX 1024
/* A launch that is larger than those measured by more than this factor is not predicted. */
#define LARGER_MOST 8

_Atomic uint64_t pace_slice_ns, pace_whole_ns;
atomic_uint pace_learnt_count;

/* Samples that the agent was not told of yet. While it is full a further one only adds its time to
 * one of the same kernel, device and size, or is lost. */
static struct {
    pthread_mutex_t lock; /* also of pace.id */
    uint32_t count;       /* guarded, as are the samples */
    struct pace_sample samples[64];
} pace_taken = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Under the program's lock. */
static struct pace *pace_find(struct program_details *details, const char *name)
{
    struct pace *pace = details->paces;
    while (pace && strcmp(pace->name, name) != 0)
        pace = pace->next;
    return pace;
}

static int pace_compare_names(const void *one, const void *other)
{
    return strcmp(one, other);
}

/* One copy of each name for the whole process: a queue remembers kernels that are gone by the time
 * at which a move waits for its commands. */
static const char *pace_name(const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static void *names;
    char *copy = strdup(name), *const *found = NULL;
    pthread_mutex_lock(&lock);
    if (copy)
        found = tsearch(copy, &names, pace_compare_names);
    const char *kept = found ? *found : NULL;
    pthread_mutex_unlock(&lock);
    if (kept != copy)
        free(copy);
    return kept;
}

static struct pace *pace_create(const char *name)
{
    struct pace *pace = calloc(1, sizeof(*pace));
    if (!pace)
        return NULL;
    pace->name = pace_name(name);
    if (!pace->name) {
        free(pace);
        return NULL;
    }
    atomic_init(&pace->whole, atomic_load(&pace_slice_ns) ? 0 : UINT64_MAX);
    atomic_init(&pace->countdown, UINT32_MAX);
    atomic_init(&pace->backoff, 1);
    return pace;
}

/* The recipe's digest, made once for all kernels of an edition. False: it cannot be told. */
static bool pace_recipe_digest(const struct program *program, uint32_t edition)
{
    struct program_details *details = program->details;
    struct content_hash hash;
    if (details->digest_edition == edition)
        return details->has_digest;
    details->digest_edition = edition;
    content_hash_begin(&hash);
    details->has_digest = program->recipe && recipe_hash(program->recipe, "", &hash) == 0;
    content_hash_end(&hash, details->digest);
    return details->has_digest;
}

/* Under the program's lock. */
static void pace_identify(struct pace *pace, const struct program *program)
{
    uint32_t edition = atomic_load(&program->edition) + 1;
    unsigned char bytes[CONTENT_HASH_SIZE];
    char id[PACE_ID_SIZE] = "";
    struct content_hash hash;
    if (pace->id_edition == edition)
        return;
    pace->id_edition = edition;
    if (pace_recipe_digest(program, edition)) {
        content_hash_begin(&hash);
        content_hash_bytes(&hash, program->details->digest, CONTENT_HASH_SIZE);
        content_hash_string(&hash, pace->name);
        content_hash_end(&hash, bytes);
        hex_put(id, bytes, (PACE_ID_SIZE - 1) / 2);
    }
    pthread_mutex_lock(&pace_taken.lock);
    memcpy(pace->id, id, sizeof(id));
    pthread_mutex_unlock(&pace_taken.lock);
}

struct pace *pace_of(struct program *program, const char *name)
{
    struct program_details *details = program->details;
    pthread_mutex_lock(&program->lock);
    struct pace *pace = pace_find(details, name);
    if (!pace && (pace = pace_create(name))) {
        pace->next = details->paces;
        details->paces = pace;
    }
    /* Another build may have other kernels of the same names. */
    if (pace && pace->known && pace->edition != atomic_load(&program->edition)) {
        pace->known = false;
        pace_goes_whole(pace, NULL);
        pace_forget(pace);
    }
    if (pace)
        pace_identify(pace, program);
    pthread_mutex_unlock(&program->lock);
    return pace;
}

int pace_traits(struct program *program, struct pace *pace, struct kernel_traits *ret_traits)
{
    const struct source_facts *facts = NULL;
    const struct kernel_traits *kept;
    int err = 0;
    pthread_mutex_lock(&program->lock);
    if (source_facts_are_of(program->details->facts, program->recipe))
        facts = program->details->facts;
    kept = source_facts_find(facts, pace->name);
    if (!pace->known && !program->recipe)
        pace->traits = (struct kernel_traits){.whole = "its program has no source"};
    else if (!pace->known && kept)
        pace->traits = *kept;
    else if (!pace->known)
        err = kernel_traits_read(program->recipe, pace->name, &pace->traits);
    if (!err) {
        pace->known = true;
        pace->edition = atomic_load(&program->edition);
        *ret_traits = pace->traits;
    }
    pthread_mutex_unlock(&program->lock);
    return err;
}

void pace_list_free(struct pace *list)
{
    while (list) {
        struct pace *next = list->next;
        for (size_t i = 0; i < PACE_ELSEWHERE; i++) {
            atomic_fetch_sub(&pace_learnt_count, list->learnt[i].costs != NULL);
            free(list->learnt[i].costs);
        }
        free(list);
        list = next;
    }
}

void pace_never(struct pace *pace, const char *reason)
{
    pace_goes_whole(pace, reason);
    atomic_store(&pace->whole, UINT64_MAX);
    atomic_store(&pace->countdown, UINT32_MAX);
}

uint32_t pace_refusals(struct program *program, struct pace_refusal *list, uint32_t count,
                       uint32_t most)
{
    pthread_mutex_lock(&program->lock);
    for (const struct pace *pace = program->details->paces; pace && count < most;
         pace = pace->next) {
        struct pace_refusal *next = &list[count];
        uint32_t same = 0;
        next->reason = atomic_load(&pace->refusal);
        if (!next->reason)
            continue;
        (void)!snprintf(next->kernel, sizeof(next->kernel), "%s", pace->name);
        while (strcmp(list[same].reason, next->reason) != 0 ||
               strcmp(list[same].kernel, next->kernel) != 0)
            same++;
        count += same == count;
    }
    pthread_mutex_unlock(&program->lock);
    return count;
}

void pace_forget(struct pace *pace)
{
    atomic_store(&pace->per_s, 0);
    atomic_store(&pace->largest, 0);
    atomic_store(&pace->backoff, 1);
    atomic_store(&pace->countdown, UINT32_MAX);
    atomic_store(&pace->whole, atomic_load(&pace_slice_ns) ? 0 : UINT64_MAX);
}

/* With the lock of pace_taken. */
static void pace_add_busy(const struct pace_sample *sample)
{
    for (uint32_t i = 0; i < pace_taken.count; i++) {
        struct pace_sample *taken = &pace_taken.samples[i];
        if (taken->device != sample->device || taken->items != sample->items ||
            strcmp(taken->id, sample->id) != 0)
            continue;
        taken->busy_ns += sample->busy_ns;
        return;
    }
}

void pace_sample(const struct pace *pace, const struct device *device, uint64_t items,
                 uint64_t done, uint64_t ns)
{
    if (done == 0)
        return;
    double whole = (double)ns * (double)items / (double)done;
    /* Short launches go whole until the countdown ends; pace_settle doubles what it begins with. */
    double launches = items < atomic_load(&pace->whole) ? atomic_load(&pace->backoff) / 2 + 1 : 1;
    struct pace_sample sample = {.device = device, .items = items};
    (void)!snprintf(sample.name, sizeof(sample.name), "%s", pace->name);
    sample.ns = whole < 1e18 ? (uint64_t)whole : (uint64_t)1e18;
    sample.busy_ns = whole * launches < 1e18 ? (uint64_t)(whole * launches) : (uint64_t)1e18;
    pthread_mutex_lock(&pace_taken.lock);
    memcpy(sample.id, pace->id, sizeof(sample.id));
    if (sample.id[0] && pace_taken.count < ARRAY_SIZE(pace_taken.samples))
        pace_taken.samples[pace_taken.count++] = sample;
    else if (sample.id[0])
        pace_add_busy(&sample);
    pthread_mutex_unlock(&pace_taken.lock);
}

uint32_t pace_samples_take(struct pace_sample *ret_samples, uint32_t most)
{
    pthread_mutex_lock(&pace_taken.lock);
    uint32_t count = pace_taken.count < most ? pace_taken.count : most;
    memcpy(ret_samples, pace_taken.samples, count * sizeof(*ret_samples));
    pace_taken.count -= count;
    memmove(pace_taken.samples, pace_taken.samples + count,
            pace_taken.count * sizeof(*pace_taken.samples));
    pthread_mutex_unlock(&pace_taken.lock);
    return count;
}

struct pace *pace_with_id(struct program *program, const char *id)
{
    pthread_mutex_lock(&program->lock);
    struct pace *pace = program->details->paces;
    pthread_mutex_lock(&pace_taken.lock);
    while (pace && strcmp(pace->id, id) != 0)
        pace = pace->next;
    pthread_mutex_unlock(&pace_taken.lock);
    pthread_mutex_unlock(&program->lock);
    return pace;
}

uint64_t pace_items(const struct pace *pace, uint64_t ns)
{
    double items = (double)atomic_load(&pace->per_s) * (double)ns / NS_PER_S;
    return items < (double)(UINT64_MAX / 4) ? (uint64_t)items : UINT64_MAX / 4;
}

static uint64_t pace_largest_like(const struct pace *pace)
{
    uint64_t largest = atomic_load(&pace->largest);
    return largest < UINT64_MAX / LARGER_MOST ? LARGER_MOST * largest : UINT64_MAX - 1;
}

bool pace_predicts(const struct pace *pace, uint64_t items)
{
    return atomic_load(&pace->per_s) != 0 && items <= pace_largest_like(pace);
}

bool pace_is_long(const struct pace *pace, uint64_t items)
{
    uint64_t most = pace_items(pace, 2 * atomic_load(&pace_slice_ns));
    return most != 0 && items >= most && pace_predicts(pace, items);
}

/* The first pieces are small, and a driver may compile while they run. So a faster measurement
 * replaces the speed at once; a slower one is averaged with it. */
void pace_measured(struct pace *pace, uint64_t items, uint64_t ns)
{
    double found = (double)items * NS_PER_S / (double)(ns ? ns : 1);
    uint64_t per_s = found < 1 ? 1 : found > 1e18 ? (uint64_t)1e18 : (uint64_t)found;
    uint64_t before = atomic_load(&pace->per_s);
    atomic_store(&pace->per_s, per_s >= before ? per_s : (before + per_s) / 2);
}

void pace_doubt(struct pace *pace)
{
    atomic_store(&pace->per_s, 0);
}

void pace_settle(struct pace *pace, uint64_t items)
{
    uint64_t least = atomic_load(&pace_whole_ns);
    uint64_t most = pace_items(pace, least != 0 ? least : 2 * atomic_load(&pace_slice_ns));
    uint32_t backoff = atomic_load(&pace->backoff);
    if (atomic_load(&pace->whole) == UINT64_MAX || most == 0)
        return; /* the kernel is never cut, or nothing is known of its speed */
    if (items > atomic_load(&pace->largest))
        atomic_store(&pace->largest, items);
    most = most < pace_largest_like(pace) ? most : pace_largest_like(pace);
    atomic_store(&pace->whole, most);
    if (items >= most) {
        atomic_store(&pace->backoff, 1);
        return;
    }
    atomic_store(&pace->countdown, backoff);
    atomic_store(&pace->backoff, backoff < BACKOFF_MAX ? 2 * backoff : BACKOFF_MAX);
}

FORK_PART = {.rank = FORK_TABLE, .lock = &pace_taken.lock};
