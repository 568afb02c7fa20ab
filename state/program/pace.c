#include "state/program/pace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/program/program_priv.h"

#define NS_PER_S    1000000000u
#define BACKOFF_MAX 1024
/* A launch that is larger than those measured by more than this factor is not predicted. */
#define LARGER_MOST 8

_Atomic uint64_t pace_slice_ns;

/* Under the program's lock. */
static struct pace *pace_find(struct program_details *details, const char *name)
{
    struct pace *pace = details->paces;
    while (pace && strcmp(pace->name, name) != 0)
        pace = pace->next;
    return pace;
}

static struct pace *pace_create(const char *name)
{
    struct pace *pace = calloc(1, sizeof(*pace));
    if (!pace)
        return NULL;
    pace->name = strdup(name);
    if (!pace->name) {
        free(pace);
        return NULL;
    }
    atomic_init(&pace->whole, atomic_load(&pace_slice_ns) ? 0 : UINT64_MAX);
    atomic_init(&pace->countdown, UINT32_MAX);
    atomic_init(&pace->backoff, 1);
    return pace;
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
        free(list->name);
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
    uint64_t slice = atomic_load(&pace_slice_ns), most = pace_items(pace, 2 * slice);
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
