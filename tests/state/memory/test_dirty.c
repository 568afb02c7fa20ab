#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/base/memory/pages.h"
#include "state/base/threads/fork.h"
#include "state/memory/dirty.h"
#include "tests/state/memory/close_faults.h"

/* Which parts of memory were written, whoever wrote. */

#define PARTS ((size_t)640)
#define BYTES (PARTS * DIRTY_PART - 8192)

static char *memory;

/* A kernel may keep us from it. */
static struct dirty *begin(void)
{
    struct dirty *dirty = NULL;
    memory = pages_take(BYTES, 0);
    cr_assert(memory);
    if (dirty_begin(memory, BYTES, &dirty) != 0)
        cases_skip("no write faults of the kernel's for us");
    return dirty;
}

static size_t descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    size_t count = 0;
    cr_assert(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* Each of these is another way into memory. */
static void shadow_copy(char *to, size_t size, unsigned how)
{
    static char bytes[4096];
    int ends[2];
    struct iovec from = {bytes, size}, into = {to, size};
    bytes[0] = (char)how;
    switch (how % 4) {
    case 0:
        memset(to, (int)how, size);
        break;
    case 1: /* the kernel, for read(2) */
        cr_assert_eq(pipe(ends), 0);
        cr_assert_eq(write(ends[1], bytes, size), (ssize_t)size);
        cr_assert_eq(read(ends[0], to, size), (ssize_t)size);
        close(ends[0]);
        close(ends[1]);
        break;
    case 2: /* the kernel, through another's eyes */
        cr_assert_eq(process_vm_writev(getpid(), &from, 1, &into, 1, 0), (ssize_t)size);
        break;
    default:
        __atomic_fetch_add((uint64_t *)to, 1, __ATOMIC_RELAXED);
        break;
    }
}

/* No write is missed; what nobody wrote to stays clean where its large page was let alone. */
Test(dirty, every_write_is_seen, .timeout = 120)
{
    struct dirty *dirty = begin();
    static bool cleaned[PARTS], written[PARTS];
    unsigned seed = 1;
    for (unsigned step = 0; step < 3000; step++) {
        size_t part = (size_t)rand_r(&seed) % PARTS, count = 1 + (size_t)rand_r(&seed) % 40;
        count = count < PARTS - part ? count : PARTS - part;
        if (step % 5 == 0) {
            cr_assert_eq(dirty_clean(dirty, part, count), 0);
            memset(cleaned + part, true, count);
            memset(written + part, false, count);
        } else {
            size_t at = part * DIRTY_PART + (size_t)rand_r(&seed) % (DIRTY_PART - 8192) / 8 * 8;
            shadow_copy(memory + at, 8 + (size_t)rand_r(&seed) % 4000, step);
            written[part] = true;
        }
        for (size_t i = 0; i < PARTS; i++)
            cr_assert_not(dirty_is_clean(dirty, i) && (written[i] || !cleaned[i]),
                          "step %u: part %zu", step, i);
    }
    cr_assert(dirty_holds(dirty));
    cr_assert_eq(dirty_clean(dirty, 0, PARTS), 0);
    for (size_t i = 0; i < PARTS; i += 64)
        shadow_copy(memory + i * DIRTY_PART, 100, (unsigned)i / 64);
    for (size_t i = 0; i < PARTS; i++)
        cr_assert_eq(dirty_is_clean(dirty, i), i % 64 != 0, "part %zu", i);
    dirty_end(dirty);
    memset(memory, 1, BYTES);
}

struct writer {
    pthread_t thread;
    _Atomic size_t *last; /* part that was written */
    size_t first;
};

static void *write_on(void *data)
{
    struct writer *writer = data;
    for (size_t i = writer->first; i < PARTS; i += 4) {
        memory[i * DIRTY_PART + 77]++;
        atomic_store(&writer->last[i], 1);
    }
    return NULL;
}

/* Threads write while others' parts become clean. */
Test(dirty, writes_of_threads_are_seen_while_parts_become_clean, .timeout = 120)
{
    static _Atomic size_t last[PARTS];
    struct dirty *dirty = begin();
    for (unsigned round = 0; round < 20; round++) {
        struct writer writers[4];
        memset((void *)last, 0, sizeof(last));
        cr_assert_eq(dirty_clean(dirty, 0, PARTS), 0);
        for (size_t i = 0; i < 4; i++) {
            writers[i] = (struct writer){.last = last, .first = i};
            cr_assert_eq(pthread_create(&writers[i].thread, NULL, write_on, &writers[i]), 0);
        }
        for (size_t part = 0; part < PARTS; part++) {
            size_t before = atomic_load(&last[part]);
            if (part % 7 == 0)
                cr_assert_eq(dirty_clean(dirty, part, 1), 0);
            else if (before)
                cr_assert_not(dirty_is_clean(dirty, part));
        }
        for (size_t i = 0; i < 4; i++)
            pthread_join(writers[i].thread, NULL);
        for (size_t part = 0; part < PARTS; part++)
            cr_assert(part % 7 == 0 || !dirty_is_clean(dirty, part), "part %zu", part);
    }
    dirty_end(dirty);
}

Test(dirty, a_child_tracks_nothing_and_disturbs_nobody, .timeout = 60)
{
    struct dirty *dirty = begin();
    int status;
    cr_assert_eq(fork_watch(), 0);
    cr_assert_eq(dirty_clean(dirty, 0, PARTS), 0);
    pid_t child = fork();
    if (child == 0) {
        memset(memory, 2, BYTES);
        bool refused = !dirty_holds(dirty) && dirty_clean(dirty, 0, 1) == -ENOTSUP;
        dirty_end(dirty);
        _exit(refused ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    cr_assert(dirty_holds(dirty));
    for (size_t i = 0; i < PARTS; i++)
        cr_assert(dirty_is_clean(dirty, i));
    memory[5 * DIRTY_PART] = 1;
    cr_assert_not(dirty_is_clean(dirty, 5));
    dirty_end(dirty);
}

/* A program closes what it does not know: who writes goes on, and what was clean is not believed.
 */
Test(dirty, what_was_closed_is_not_believed, .timeout = 60)
{
    struct dirty *dirty = begin(), *next = NULL;
    cr_assert_eq(dirty_clean(dirty, 0, PARTS), 0);
    close_faults();
    memset(memory, 2, BYTES);
    cr_assert_not(dirty_holds(dirty));
    cr_assert_eq(dirty_clean(dirty, 0, 1), -ENOTSUP);
    cr_assert_eq(dirty_begin(memory, BYTES, &next), 0);
    cr_assert_not(dirty_holds(dirty));
    cr_assert_eq(dirty_clean(next, 3, 1), 0);
    dirty_end(dirty);
    cr_assert(dirty_holds(next));
    memory[3 * DIRTY_PART + 9] = 3;
    cr_assert_not(dirty_is_clean(next, 3));
    dirty_end(next);
}

static _Atomic size_t given;

static void give(char *bytes, size_t size)
{
    cr_assert(bytes == memory && size == BYTES);
    memset(bytes, 4, size);
    atomic_store(&given, size);
}

Test(dirty, with_the_last_one_nothing_is_left, .timeout = 60)
{
    size_t before = descriptors();
    struct dirty *dirty = begin();
    cr_assert_eq(dirty_clean(dirty, 0, PARTS), 0);
    cr_assert_eq(descriptors(), before + 1);
    dirty_end(dirty);
    cr_assert_eq(descriptors(), before);
    cr_assert_eq(dirty_begin(memory, BYTES, &dirty), 0);
    cr_assert_eq(dirty_clean(dirty, 0, PARTS), 0);
    dirty_end_later(dirty, give);
    while (atomic_load(&given) == 0 || descriptors() != before)
        clock_sleep(NS_PER_MS);
}

/* The kernel's own writes would fail for who may not see them. */
Test(dirty, without_the_right_there_is_none, .timeout = 60)
{
    struct dirty *dirty = begin();
    int status;
    char free_for_all = '0';
    FILE *file = fopen("/proc/sys/vm/unprivileged_userfaultfd", "r");
    if (file) {
        free_for_all = (char)fgetc(file);
        fclose(file);
    }
    dirty_end(dirty);
    pid_t child = fork();
    if (child == 0) {
        bool may = setresuid(65534, 65534, 65534) != 0 || free_for_all == '1' ||
                   access("/dev/userfaultfd", R_OK | W_OK) == 0;
        int error = dirty_begin(memory, BYTES, &dirty);
        _exit(may || error == -ENOTSUP ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
}
