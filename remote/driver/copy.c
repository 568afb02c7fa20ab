#include "remote/driver/copy.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/memory/past_caches.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"

bool layout_size(const struct layout *layout, size_t *ret_size)
{
    size_t size;
    if (__builtin_mul_overflow(layout->row, layout->rows, &size) ||
        __builtin_mul_overflow(size, layout->slices, &size))
        return false;
    *ret_size = size;
    return true;
}

bool layout_is_packed(const struct layout *layout)
{
    return (layout->rows == 1 || layout->row_pitch == layout->row) &&
           (layout->slices == 1 || layout->slice_pitch == layout->row * layout->rows);
}

/* As much goes past the caches. */
#define MUCH ((size_t)1 << 20)

/* One run of bytes, in pieces of COPY_LEAST: what comes last is what is waited for, and several
   threads have copied it sooner. */
struct whole {
    char *to;
    const char *from;
    size_t size;
    void (*copy)(char *to, const char *from, size_t size);
};

static void layout_copy_piece(void *data, size_t piece)
{
    const struct whole *whole = data;
    size_t at = piece * COPY_LEAST, left = whole->size - at;
    whole->copy(whole->to + at, whole->from + at, left < COPY_LEAST ? left : COPY_LEAST);
}

static void layout_copy_bytes(char *to, const char *from, size_t size)
{
    memcpy(to, from, size);
}

static void layout_copy_whole(const struct layout *layout, void *to, const void *from,
                              void (*copy)(char *to, const char *from, size_t size))
{
    struct whole whole = {to, from, layout->row * layout->rows * layout->slices, copy};
    if (copy == layout_copy_bytes && whole.size >= MUCH)
        whole.copy = copy_past_caches;
    copy_pieces(layout_copy_piece, &whole, (whole.size + COPY_LEAST - 1) / COPY_LEAST);
}

/* To the packed bytes (@gathers), or from them. */
static void layout_copy(const struct layout *layout, char *memory, char *packed, bool gathers,
                        void (*copy)(char *to, const char *from, size_t size))
{
    if (layout_is_packed(layout)) {
        layout_copy_whole(layout, gathers ? packed : memory, gathers ? memory : packed, copy);
        return;
    }
    for (size_t z = 0; z < layout->slices; z++)
        for (size_t y = 0; y < layout->rows; y++, packed += layout->row) {
            char *row = memory + z * layout->slice_pitch + y * layout->row_pitch;
            copy(gathers ? packed : row, gathers ? row : packed, layout->row);
        }
}

void layout_gather(const struct layout *layout, void *packed, const void *memory)
{
    layout_copy(layout, (char *)(uintptr_t)memory, packed, true, layout_copy_bytes);
}

void layout_scatter(const struct layout *layout, const void *packed, void *memory)
{
    layout_copy(layout, memory, (char *)(uintptr_t)packed, false, layout_copy_bytes);
}

#define PAGE 4096

/* Page by page, as memory is protected. */
static void layout_refresh_bytes(char *to, const char *from, size_t size)
{
    for (size_t at = 0, some; at < size; at += some) {
        some = PAGE - (uintptr_t)(to + at) % PAGE;
        if (some > size - at)
            some = size - at;
        if (memcmp(to + at, from + at, some) != 0)
            memcpy(to + at, from + at, some);
    }
}

void layout_refresh(const struct layout *layout, const void *packed, void *memory)
{
    layout_copy(layout, memory, (char *)(uintptr_t)packed, false, layout_refresh_bytes);
}

#define THREADS_ENV "RESEAT_COPY_THREADS"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t posted;
    struct copy *first, **last; /* These and all below: guarded by lock. */
    unsigned waiting;           /* Of them. */
    unsigned threads, idle;
} pool = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .posted = PTHREAD_COND_INITIALIZER, .last = &pool.first};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned threads_most;

static void copy_in_child(void)
{
    pool.first = NULL;
    pool.last = &pool.first;
    pool.waiting = pool.threads = pool.idle = 0;
}

FORK_PART = {
    .rank = FORK_OBJECT, .lock = &pool.lock, .changed = {&pool.posted}, .in_child = copy_in_child};

/* Half of the processors are the server's and the program's, and one copy is the caller's. */
static void copy_choose(void)
{
    cpu_set_t processors;
    const char *asked = getenv(THREADS_ENV);
    unsigned count = 0;
    if (asked)
        count = (unsigned)strtoul(asked, NULL, 10);
    else if (sched_getaffinity(0, sizeof(processors), &processors) == 0 &&
             CPU_COUNT(&processors) > 3)
        count = (unsigned)CPU_COUNT(&processors) / 2 - 1;
    threads_most = count < COPY_THREADS_MAX ? count : COPY_THREADS_MAX;
}

unsigned copy_threads(void)
{
    pthread_once(&once, copy_choose);
    return threads_most;
}

static void *copy_thread(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (!pool.first) {
            pool.idle++;
            pthread_cond_wait(&pool.posted, &pool.lock);
            pool.idle--;
        }
        struct copy *copy = pool.first;
        pool.first = copy->next;
        if (!pool.first)
            pool.last = &pool.first;
        pool.waiting--;
        pthread_mutex_unlock(&pool.lock);
        copy->run(copy);
        pthread_mutex_lock(&pool.lock);
    }
    return NULL;
}

bool copy_post(struct copy *copy)
{
    if (copy_threads() == 0)
        return false;
    pthread_mutex_lock(&pool.lock);
    if (pool.idle <= pool.waiting && pool.threads < threads_most &&
        thread_start("reseat-copy", 0, copy_thread, NULL, NULL) == 0)
        pool.threads++;
    bool there = pool.threads > 0;
    if (there) {
        copy->next = NULL;
        *pool.last = copy;
        pool.last = &copy->next;
        pool.waiting++;
        pthread_cond_signal(&pool.posted);
    }
    pthread_mutex_unlock(&pool.lock);
    return there;
}

/* False: it was begun. */
static bool copy_take_back(const struct copy *copy)
{
    pthread_mutex_lock(&pool.lock);
    struct copy **at = &pool.first;
    while (*at && *at != copy)
        at = &(*at)->next;
    bool found = *at != NULL;
    if (found) {
        *at = copy->next;
        if (!*at)
            pool.last = at;
        pool.waiting--;
    }
    pthread_mutex_unlock(&pool.lock);
    return found;
}

static void copy_help(struct copy *copy)
{
    struct copy_team *team = container_of(copy, struct copy_helper, copy)->team;
    while (team->next(team))
        ;
    atomic_fetch_sub(&team->helpers, 1); /* From here on it may be gone. */
}

void copy_team_begin(struct copy_team *team, bool (*next)(struct copy_team *team), size_t pieces)
{
    unsigned wanted = copy_threads() < pieces ? copy_threads() : (unsigned)pieces;
    team->next = next;
    atomic_init(&team->helpers, wanted);
    for (team->asked = 0; team->asked < wanted; team->asked++) {
        struct copy_helper *helper = &team->helping[team->asked];
        *helper = (struct copy_helper){.copy = {.run = copy_help}, .team = team};
        if (!copy_post(&helper->copy))
            break;
    }
    atomic_fetch_sub(&team->helpers, wanted - team->asked);
}

void copy_team_end(struct copy_team *team)
{
    for (unsigned i = 0; i < team->asked; i++)
        if (copy_take_back(&team->helping[i].copy))
            atomic_fetch_sub(&team->helpers, 1);
    while (atomic_load(&team->helpers))
        sched_yield();
}

struct pieces {
    struct copy_team team;
    void (*copy)(void *data, size_t piece);
    void *data;
    size_t count;
    atomic_size_t begun;
};

static bool copy_next_piece(struct copy_team *team)
{
    struct pieces *pieces = container_of(team, struct pieces, team);
    size_t piece = atomic_fetch_add(&pieces->begun, 1);
    if (piece >= pieces->count)
        return false;
    pieces->copy(pieces->data, piece);
    return true;
}

void copy_pieces(void (*copy)(void *data, size_t piece), void *data, size_t count)
{
    struct pieces pieces = {.copy = copy, .data = data, .count = count};
    if (count > 1)
        copy_team_begin(&pieces.team, copy_next_piece, count - 1);
    while (copy_next_piece(&pieces.team))
        ;
    copy_team_end(&pieces.team);
}
