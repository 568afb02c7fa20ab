#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/base/memory/host_memory.h"
#include "state/base/memory/pages.h"
#include "tests/support/folder.h"

#define MIB   ((size_t)1 << 20)
#define LARGE (2 * MIB)

/* The C library's, with refusals: of one advice, or of any mapping. */
static atomic_int refused_advice = -1;
static atomic_bool refuses_maps;

int madvise(void *memory, size_t size, int advice)
{
    if (advice == atomic_load(&refused_advice)) {
        errno = ENOMEM;
        return -1;
    }
    return (int)syscall(SYS_madvise, memory, size, advice);
}

void *mmap(void *memory, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (atomic_load(&refuses_maps)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, memory, size, protection, flags, fd, offset); // NOLINT
}

/* Bytes of this process that are there and that a child would not get: what is warm, as the kernel
 * counts it. */
static size_t kept_bytes(void)
{
    char line[512];
    size_t kept = 0, rss = 0;
    FILE *file = fopen("/proc/self/smaps", "re");
    cr_assert_not_null(file);
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "Rss: %zu kB", &rss) != 1 && strncmp(line, "VmFlags:", 8) == 0 &&
            strstr(line, " dc "))
            kept += rss << 10;
    (void)fclose(file);
    return kept;
}

static char *taken(size_t size, unsigned flags)
{
    char *memory = pages_take(size, flags);
    cr_assert_not_null(memory);
    return memory;
}

static void make_warm(size_t size)
{
    char *memory = taken(size, PAGES_ANY);
    memset(memory, 0xa5, size);
    pages_give(memory, size);
}

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

Test(pages, without_a_limit_nothing_is_kept)
{
    make_warm(32 * MIB);
    cr_assert_eq(pages_warm(), 0);
    cr_assert_eq(kept_bytes(), 0);
}

Test(pages, what_is_given_back_is_taken_again_without_faults)
{
    pages_set_limit(64 * MIB);
    make_warm(32 * MIB);
    cr_assert_eq(pages_warm(), 32 * MIB);
    cr_assert_eq(kept_bytes(), 32 * MIB);
    long before = faults();
    char *memory = taken(32 * MIB, PAGES_ANY);
    memset(memory, 1, 32 * MIB);
    cr_assert_leq(faults() - before, 4);
    cr_assert_eq(pages_warm(), 0);
    cr_assert_eq(kept_bytes(), 0, "what is in use is a child's too");
    pages_give(memory, 32 * MIB);
}

Test(pages, who_measures_gets_none_that_are_warm)
{
    pages_set_limit(64 * MIB);
    make_warm(32 * MIB);
    char *memory = taken(16 * MIB, PAGES_ANY | PAGES_FRESH);
    cr_assert_eq(pages_warm(), 32 * MIB);
    cr_assert(pages_are_fresh(memory, 16 * MIB));
    pages_give(memory, 16 * MIB);
}

Test(pages, bytes_that_are_to_be_zero_are)
{
    pages_set_limit(64 * MIB);
    make_warm(32 * MIB);
    char *memory = taken(32 * MIB, 0);
    for (size_t i = 0; i < 32 * MIB; i++)
        cr_assert_eq(memory[i], 0, "byte %zu", i);
    pages_give(memory, 32 * MIB);
}

Test(pages, parts_are_taken_from_the_smallest_that_fits_and_join_again)
{
    pages_set_limit(128 * MIB);
    make_warm(64 * MIB);
    char *a = taken(16 * MIB, PAGES_ANY), *b = taken(32 * MIB, PAGES_ANY);
    cr_assert_eq(b, a - 32 * MIB);
    cr_assert_eq(pages_warm(), 16 * MIB);
    char *c = taken(16 * MIB, PAGES_ANY);
    cr_assert_eq(c, b - 16 * MIB);
    pages_give(a, 16 * MIB);
    pages_give(c, 16 * MIB);
    pages_give(taken(10 * MIB, PAGES_ANY), 10 * MIB);
    cr_assert_eq(pages_warm(), 32 * MIB);
    pages_give(b, 32 * MIB);
    cr_assert_eq(pages_warm(), 64 * MIB);
    cr_assert_eq(taken(64 * MIB, PAGES_ANY), c);
}

/* Of more than the limit a part is warm: what is given back beyond it, and what is wanted. */
Test(pages, what_exceeds_the_limit_is_unmapped_and_made_anew)
{
    pages_set_limit(16 * MIB);
    make_warm(64 * MIB);
    cr_assert_eq(pages_warm(), 16 * MIB);
    cr_assert_eq(kept_bytes(), 16 * MIB);
    char *memory = taken(64 * MIB, PAGES_ANY);
    cr_assert_eq(pages_warm(), 0);
    cr_assert(!pages_are_fresh(memory + 48 * MIB, 16 * MIB));
    cr_assert(pages_are_fresh(memory, 48 * MIB));
    memset(memory, 1, 64 * MIB);
    pages_give(memory, 64 * MIB);
    pages_set_limit(7 * MIB);
    cr_assert_eq(pages_warm(), 6 * MIB);
    pages_set_limit(0);
    cr_assert_eq(kept_bytes(), 0);
}

/* Memory that is large and was hardly touched is no warm memory. */
Test(pages, only_what_was_touched_is_kept)
{
    pages_set_limit(64 * MIB);
    char *memory = taken(32 * MIB, 0);
    memset(memory + 24 * MIB, 1, 8 * MIB);
    pages_give(memory, 32 * MIB);
    cr_assert_eq(pages_warm(), 8 * MIB);
}

Test(pages, sizes_that_are_no_whole_pages)
{
    pages_set_limit(64 * MIB);
    for (size_t size = 1; size < 40 * MIB; size = size * 3 + 1) {
        char *memory = taken(size, PAGES_ANY);
        memory[0] = memory[size - 1] = 1;
        cr_assert_eq((uintptr_t)memory % (size >= PAGES_LEAST ? LARGE : 4096), 0);
        pages_give(memory, size);
        cr_assert_leq(kept_bytes(), 64 * MIB);
    }
    cr_assert_null(pages_take(SIZE_MAX, PAGES_ANY));
    cr_assert_null(pages_take(SIZE_MAX / 2, PAGES_ANY));
    pages_give(NULL, 1);
}

struct player {
    unsigned seed;
    unsigned char mark;
};

#define LIMIT (48 * MIB)

/* Takes and gives at random; nobody else writes what it has. */
static void *play(void *data)
{
    struct player *player = data;
    char *had[3] = {0};
    size_t sizes[3] = {0};
    for (int turn = 0; turn < 300; turn++) {
        size_t i = (size_t)rand_r(&player->seed) % 3;
        if (had[i]) {
            for (size_t at = 0; at < sizes[i]; at += 4096)
                cr_assert_eq((unsigned char)had[i][at], player->mark);
            pages_give(had[i], sizes[i]);
            had[i] = NULL;
        } else {
            sizes[i] = (PAGES_LEAST - LARGE) + (size_t)rand_r(&player->seed) % (16 * MIB);
            had[i] = taken(sizes[i], PAGES_ANY | (turn % 5 == 0 ? PAGES_NO_FORK : 0));
            if (turn % 3 == 0)
                pages_populate(had[i], sizes[i], 2, NULL);
            for (size_t at = 0; at < sizes[i]; at += 4096)
                had[i][at] = (char)player->mark;
        }
        cr_assert_leq(pages_warm(), LIMIT);
    }
    for (int i = 0; i < 3; i++)
        pages_give(had[i], sizes[i]);
    return NULL;
}

static void *set_limits(void *stop)
{
    for (unsigned i = 0; !atomic_load((atomic_bool *)stop); i++) {
        pages_set_limit(i % 4 == 0 ? 0 : LIMIT / (i % 4));
        clock_sleep(NS_PER_MS);
    }
    return NULL;
}

Test(pages, threads_never_get_the_same_memory_nor_keep_more_than_the_limit, .timeout = 120)
{
    pthread_t threads[4], limits;
    struct player players[4];
    atomic_bool stop = false;
    pages_set_limit(LIMIT);
    for (unsigned i = 0; i < 4; i++) {
        players[i] = (struct player){i + 1, (unsigned char)(i + 1)};
        cr_assert_eq(pthread_create(&threads[i], NULL, play, &players[i]), 0);
    }
    cr_assert_eq(pthread_create(&limits, NULL, set_limits, &stop), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&stop, true);
    pthread_join(limits, NULL);
    pages_set_limit(LIMIT);
    cr_assert_leq(pages_warm(), LIMIT);
    cr_assert_eq(kept_bytes(), pages_warm());
    make_warm(LIMIT);
    cr_assert_eq(kept_bytes(), pages_warm());
    pages_set_limit(0);
    cr_assert_eq(pages_warm(), 0);
    cr_assert_eq(kept_bytes(), 0);
}

static void child_has_none(void)
{
    char *memory = pages_take(16 * MIB, PAGES_ANY);
    bool good = memory != NULL && pages_warm() == 0 && pages_are_fresh(memory, 16 * MIB);
    if (memory)
        memset(memory, 1, 16 * MIB);
    pages_give(memory, 16 * MIB);
    good = good && pages_warm() == 0 && kept_bytes() == 0;
    pages_set_limit(16 * MIB);
    make_warm(16 * MIB);
    good = good && pages_warm() == 16 * MIB;
    _exit(good ? 0 : 1);
}

static void expect_child(pid_t child)
{
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

Test(pages, a_child_has_none_and_its_parent_all)
{
    pages_set_limit(64 * MIB);
    make_warm(32 * MIB);
    pid_t child = fork();
    if (child == 0)
        child_has_none();
    expect_child(child);
    /* Made past the C library: nobody told it. */
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        child_has_none();
    expect_child(child);
    cr_assert_eq(pages_warm(), 32 * MIB);
    long before = faults();
    memset(taken(32 * MIB, PAGES_ANY), 1, 32 * MIB);
    cr_assert_leq(faults() - before, 4);
}

#ifndef __SANITIZE_ADDRESS__ /* which has no limited address space to live in */
Test(pages, a_limited_address_space_is_the_programs)
{
    struct rlimit limit;
#ifdef __SANITIZE_THREAD__
    cases_skip("ThreadSanitizer has more than that reserved");
#endif
    pages_set_limit(64 * MIB);
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = (rlim_t)1 << 40;
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    make_warm(32 * MIB);
    cr_assert_eq(pages_warm(), 0);
    cr_assert_not(pages_keep(MIB));
    /* Room for what is wanted, but not for a large page around it. */
    size_t used = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    cr_assert_eq(fscanf(file, "%zu", &used), 1);
    (void)fclose(file);
    limit.rlim_cur = used * 4096 + 33 * MIB;
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    char *memory = taken(32 * MIB, PAGES_ANY);
    memset(memory, 1, 32 * MIB);
    cr_assert_null(pages_take(32 * MIB, PAGES_ANY));
    pages_give(memory, 32 * MIB);
}
#endif

Test(pages, refusals_of_the_kernel_lose_nothing)
{
    pages_set_limit(64 * MIB);
    make_warm(32 * MIB);
    atomic_store(&refuses_maps, true);
    cr_assert_null(pages_take(PAGES_LEAST, 0), "nothing to give up helps");
    cr_assert_eq(pages_warm(), 0, "what was warm was given up for it");
    atomic_store(&refuses_maps, false);
    cr_assert_eq(kept_bytes(), 0);

    atomic_store(&refused_advice, MADV_DONTFORK);
    make_warm(32 * MIB);
    cr_assert_eq(pages_warm(), 0, "a child would have it");
    atomic_store(&refused_advice, -1);
    make_warm(32 * MIB);
    atomic_store(&refused_advice, MADV_DOFORK);
    char *memory = taken(32 * MIB, PAGES_ANY);
    cr_assert(pages_are_fresh(memory, 32 * MIB), "a child would not have it");
    atomic_store(&refused_advice, 23); /* MADV_POPULATE_WRITE */
    pages_populate(memory, 32 * MIB, 4, NULL);
    atomic_store(&refused_advice, -1);
    memset(memory, 1, 32 * MIB);
    pages_give(memory, 32 * MIB);
}

Test(pages, populating_ends_when_it_is_to_be_over)
{
    atomic_bool cancel = true;
    const struct pages_patience canceled = {.cancel = &cancel}, late = {.deadline_ns = 1};
    char *memory = taken(32 * MIB, PAGES_ANY);
    pages_populate(memory, 32 * MIB, 4, &canceled);
    pages_populate(memory, 32 * MIB, 4, &late);
    for (size_t at = 0; at < 32 * MIB; at += LARGE)
        cr_assert(pages_are_fresh(memory + at, LARGE));
    atomic_store(&cancel, false);
    pages_populate(memory, 32 * MIB, 4, &canceled);
    for (size_t at = 0; at < 32 * MIB; at += LARGE)
        cr_assert(!pages_are_fresh(memory + at, LARGE));
    pages_give(memory, 32 * MIB);
}

/* ---- the host's memory, as a folder that looks like its own ---- */

static void host_write(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "%s%s", host_memory_root, path);
    for (char *slash = strchr(whole + strlen(host_memory_root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *file = fopen(whole, "we");
    cr_assert_not_null(file, "%s", whole);
    fputs(text, file);
    (void)fclose(file);
}

static void host_says(size_t available_mib, const char *load, unsigned long stalled_us)
{
    char text[256];
    snprintf(text, sizeof(text), "MemTotal: %zu kB\nMemFree: 1 kB\nMemAvailable: %zu kB\n",
             (size_t)16384 << 10, available_mib << 10);
    host_write("/proc/meminfo", text);
    snprintf(text, sizeof(text), "some avg10=0.00 total=%lu\nfull avg10=0.00 total=7\n",
             stalled_us);
    host_write("/proc/pressure/memory", text);
    host_write("/proc/loadavg", load);
}

static void host_begin(void)
{
    static char root[SCRATCH_MAX];
    folder_make(root);
    host_memory_root = root;
    host_says(8192, "0.00 0.00 0.00 1/100 1", 0);
}

Test(host_memory, is_read_as_it_is, .init = host_begin)
{
    struct host_memory host;
    host_says(1000, "1.50 0.00 0.00 1/100 1", 1234);
    cr_assert_eq(host_memory_read(&host), 0);
    cr_assert_eq(host.total, 16384 * MIB);
    cr_assert_eq(host.available, 1000 * MIB);
    cr_assert_eq(host.stalled_us, 1234);
    cr_assert_float_eq(host.load, 1.5, 1e-9);
    host_write("/proc/meminfo", "MemTotal: 5 kB\n");
    cr_assert_eq(host_memory_read(&host), -ENODATA);
    host_memory_root = "/nowhere";
    cr_assert_eq(host_memory_read(&host), -ENOENT);
    host_memory_root = "";
    cr_assert_eq(host_memory_read(&host), 0);
    cr_assert(host.total > 0 && host.available <= host.total);
}

/* A limit of any group from the process's own upwards; what is cached there can be had. */
Test(host_memory, is_what_control_groups_leave, .init = host_begin)
{
    struct host_memory host;
    host_write("/proc/self/cgroup", "1:cpu:/x\n0::/a/b\n");
    host_write("/sys/fs/cgroup/a/b/memory.max", "max\n");
    host_write("/sys/fs/cgroup/a/b/memory.current", "5\n");
    host_write("/sys/fs/cgroup/a/memory.max", "1073741824\n");
    host_write("/sys/fs/cgroup/a/memory.high", "536870912\n");
    host_write("/sys/fs/cgroup/a/memory.current", "314572800\n");
    host_write("/sys/fs/cgroup/a/memory.stat", "anon 5\nactive_file 7\ninactive_file 104857600\n");
    cr_assert_eq(host_memory_read(&host), 0);
    cr_assert_eq(host.total, 512 * MIB);
    cr_assert_eq(host.available, 312 * MIB);

    host_write("/proc/self/cgroup", "4:memory:/j\n3:cpuset:/\n");
    host_write("/sys/fs/cgroup/memory/j/memory.limit_in_bytes", "104857600\n");
    host_write("/sys/fs/cgroup/memory/j/memory.usage_in_bytes", "104857600\n");
    cr_assert_eq(host_memory_read(&host), 0);
    cr_assert_eq(host.total, 100 * MIB);
    cr_assert_eq(host.available, 0);
}

Test(pages, a_short_host_gets_everything_back, .init = host_begin)
{
    pages_set_limit(64 * MIB);
    make_warm(32 * MIB);
    pages_tend(0);
    cr_assert_eq(pages_warm(), 32 * MIB);
    host_says(2000, "0", 0); /* less than an eighth of 16 GiB */
    pages_tend(0);
    cr_assert_eq(pages_warm(), 0);
    cr_assert_eq(kept_bytes(), 0);
    make_warm(32 * MIB);
    host_says(3000, "0", 0); /* more, but not yet twice as much */
    pages_tend(64 * MIB);
    make_warm(32 * MIB);
    cr_assert_eq(pages_warm(), 0);
    host_says(5000, "0", 0);
    pages_tend(0);
    make_warm(32 * MIB);
    cr_assert_eq(pages_warm(), 32 * MIB);
    host_write("/proc/self/cgroup", "0::/a\n");
    host_write("/sys/fs/cgroup/a/memory.max", "1073741824\n");
    host_write("/sys/fs/cgroup/a/memory.current", "1000000000\n");
    pages_tend(0);
    cr_assert_eq(pages_warm(), 0, "its group has no more");
}

static unsigned shrunk;

static void shrink(void)
{
    shrunk++;
    pages_unkeep(48 * MIB);
}

Test(pages, what_others_keep_counts_and_is_given_back, .init = host_begin)
{
    pages_set_limit(64 * MIB);
    pages_set_shrink(shrink);
    host_says(8192, "0", 0);
    make_warm(64 * MIB);
    cr_assert_not(pages_keep(65 * MIB));
    cr_assert(pages_keep(48 * MIB));
    cr_assert_eq(pages_warm(), 16 * MIB, "what is warm makes way");
    cr_assert_not(pages_keep(17 * MIB));
    make_warm(32 * MIB);
    cr_assert_eq(pages_warm(), 16 * MIB);
    pages_tend(0);
    cr_assert_eq(shrunk, 0);
    host_says(100, "0", 0);
    pages_tend(0);
    cr_assert_eq(shrunk, 1);
    cr_assert_eq(pages_warm(), 0);
    cr_assert_not(pages_keep(MIB), "the host is short");
    pages_set_limit(32 * MIB);
    cr_assert_eq(shrunk, 2);
}

Test(pages, a_host_that_stalls_gets_everything_back, .init = host_begin)
{
    pages_set_limit(64 * MIB);
    host_says(8192, "0", 5000000);
    make_warm(32 * MIB);
    pages_tend(0);
    cr_assert_eq(pages_warm(), 32 * MIB, "what was before counts for nothing");
    host_says(8192, "0", 3600u * 1000000);
    pages_tend(0);
    cr_assert_eq(pages_warm(), 0);
    clock_sleep(5 * NS_PER_MS);
    pages_tend(0);
    make_warm(32 * MIB);
    cr_assert_eq(pages_warm(), 32 * MIB);
}

Test(pages, an_idle_host_is_warmed_ahead, .init = host_begin)
{
    const struct {
        size_t available_mib;
        const char *load;
        bool warms;
    } hosts[] = {{8192, "9999.0", false}, {4100, "0", false}, {8192, "0", true}};
    for (size_t i = 0; i < 3; i++) {
        pages_set_limit(0);
        pages_tend(100 * MIB);
        cr_assert_eq(pages_warm(), 0);
        pages_set_limit(112 * MIB);
        host_says(hosts[i].available_mib, hosts[i].load, 0);
        pages_tend(0);
        cr_assert_eq(pages_warm(), 0, "nothing is wanted");
        for (int turn = 0; turn < 3; turn++)
            pages_tend(96 * MIB);
        cr_assert_eq(pages_warm(), hosts[i].warms ? 96 * MIB : 0, "host %zu", i);
        cr_assert_eq(kept_bytes(), pages_warm());
        for (int turn = 0; turn < 3; turn++)
            pages_tend(1000 * MIB);
        cr_assert_eq(pages_warm(), hosts[i].warms ? 112 * MIB : 0);
    }
#ifndef __SANITIZE_ADDRESS__ /* whose own memory lies in between */
    long before = faults();
    memset(taken(112 * MIB, PAGES_ANY), 1, 112 * MIB);
    cr_assert_leq(faults() - before, 4, "it is one piece");
#endif
}
