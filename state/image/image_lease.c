#include "state/image/image_lease.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "state/base/bytes/text.h"
#include "state/base/clock.h"
#include "state/base/files/access.h"

#define LEASES "rights"
/* All files have one size, so that they are overwritten in place. */
#define BLOCK LEASE_BLOCK
/* Longest "ID.N", and name of an unfinished file. */
#define NAME_MAX_BYTES 64
#define GENERATIONS    1000000u
/* How the name of an unfinished file begins. */
#define NEW "new-"
/* How the line of a reason begins. */
#define WHY "why "

static const char *const states[] = {"taken", "running", "ended"};

bool lease_id_is_valid(const char *id)
{
    return strlen(id) == LEASE_ID_MAX - 1 && strspn(id, "0123456789abcdef") == LEASE_ID_MAX - 1;
}

static int image_lease_random_id(char ret_id[LEASE_ID_MAX])
{
    uint64_t number;
    if (getrandom(&number, sizeof(number), 0) != sizeof(number))
        return -EIO;
    (void)!snprintf(ret_id, LEASE_ID_MAX, "%016" PRIx64, number);
    return 0;
}

/* Open the folder anew each time: it may be on another host, and its owner may have changed. */
static int image_lease_open_leases(const char *path, bool make, struct owned *ret_leases)
{
    struct owned CLEANUP(owned_close) folder = OWNED_NONE;
    int error = file_folder(NULL, path, &folder);
    if (error)
        return error;
    if (make && mkdirat(owned_fd(&folder), LEASES, 0700) != 0 && errno != EEXIST)
        return -errno;
    return file_folder(&folder, LEASES, ret_leases);
}

/* ---- what is in a file ---- */

static void image_lease_write_block(const struct lease_holder *holder, char ret_block[BLOCK])
{
    memset(ret_block, '\n', BLOCK);
    int length = snprintf(ret_block, BLOCK,
                          "reseat right 1\n%s %u %" PRIu64 " %" PRIu64 " %s %s\n" WHY "%s\n",
                          states[holder->state], holder->lease_ms, holder->pid, holder->beat,
                          holder->boot, holder->host, holder->reason);
    ret_block[length] = '\n'; /* overwrites the NUL */
}

int lease_decode(const char block[LEASE_BLOCK], struct lease_holder *ret_holder)
{
    char text[BLOCK + 1], state[16], *why;
    struct lease_holder holder = {0};
    memcpy(text, block, BLOCK);
    text[BLOCK] = '\0';
    if (sscanf(text, "reseat right 1\n%15s %" SCNu32 " %" SCNu64 " %" SCNu64 " %36s %64s\n", state,
               &holder.lease_ms, &holder.pid, &holder.beat, holder.boot, holder.host) != 6 ||
        holder.lease_ms < LEASE_LEAST_MS || holder.lease_ms > LEASE_MOST_MS ||
        !text_is_safe(holder.host, strlen(holder.host)) ||
        !text_is_safe(holder.boot, strlen(holder.boot)))
        return -EBADMSG;
    for (holder.state = LEASE_TAKEN; strcmp(state, states[holder.state]) != 0; holder.state++)
        if (holder.state == LEASE_ENDED)
            return -EBADMSG;
    /* Earlier releases wrote no reason. */
    if ((why = strstr(text, "\n" WHY)))
        text_make_safe(holder.reason, sizeof(holder.reason), why + strlen("\n" WHY),
                       strcspn(why + strlen("\n" WHY), "\n"));
    *ret_holder = holder;
    return 0;
}

/* Make @text one safe word. */
static void image_lease_put_word(char *ret_word, size_t size, const char *text)
{
    text_make_safe(ret_word, size, text, strlen(text));
    for (char *at = ret_word; *at; at++)
        if (*at == ' ')
            *at = '_';
    if (!*ret_word)
        (void)!snprintf(ret_word, size, "-");
}

static void image_lease_describe_own(struct lease_holder *holder)
{
    struct utsname host;
    char boot[64] = "";
    struct owned CLEANUP(owned_close) file = OWNED_NONE;
    const char *named = secure_getenv(LEASE_ENV_BOOT);
    if (named && *named) {
        (void)!snprintf(boot, sizeof(boot), "%s", named);
    } else if (owned_take(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC), &file) ==
               0) {
        ssize_t size = read(owned_fd(&file), boot, sizeof(boot) - 1);
        boot[size > 0 ? strcspn(boot, "\n") : 0] = '\0';
    }
    image_lease_put_word(holder->boot, sizeof(holder->boot), boot);
    image_lease_put_word(holder->host, sizeof(holder->host),
                         uname(&host) == 0 ? host.nodename : "");
    holder->pid = (uint64_t)getpid();
}

bool lease_is_of_this_host(const struct lease *lease)
{
    struct lease_holder own;
    image_lease_describe_own(&own);
    return strcmp(lease->holder.boot, own.boot) == 0 && strcmp(lease->holder.host, own.host) == 0;
}

bool lease_is_own(const struct lease *lease)
{
    return lease->holder.state == LEASE_RUNNING && lease->holder.pid == (uint64_t)getpid() &&
           lease_is_of_this_host(lease);
}

/* ---- files ---- */

static void image_lease_name_of(const char *id, uint64_t generation, char ret_name[NAME_MAX_BYTES])
{
    (void)!snprintf(ret_name, NAME_MAX_BYTES, "%s.%" PRIu64, id, generation);
}

/* Make the lease's file, unless there is one of that name: by link(), which only one host can do.
 */
static int image_lease_make_file(const struct owned *leases, const struct lease *lease)
{
    char block[BLOCK], name[NAME_MAX_BYTES], before[NAME_MAX_BYTES], random[LEASE_ID_MAX];
    const struct file_part part = {block, BLOCK};
    struct stat stat;
    int error = image_lease_random_id(random);
    if (error)
        return error;
    image_lease_name_of(lease->id, lease->generation, name);
    (void)!snprintf(before, sizeof(before), NEW "%s", random);
    image_lease_write_block(&lease->holder, block);
    error = file_make(leases, before, &part, 1);
    if (error)
        return error;
    /* NFS may repeat a call whose answer was lost, which then fails: the number of links shows that
     * the first one succeeded. */
    if (linkat(owned_fd(leases), before, owned_fd(leases), name, 0) != 0) {
        error = -errno;
        if (fstatat(owned_fd(leases), before, &stat, AT_SYMLINK_NOFOLLOW) == 0 &&
            stat.st_nlink == 2)
            error = 0;
    }
    (void)!unlinkat(owned_fd(leases), before, 0);
    return error ? error : file_sync(leases);
}

void lease_sweep(const struct owned *folder)
{
    struct owned CLEANUP(owned_close) leases = OWNED_NONE;
    struct file_names names;
    if (file_folder(folder, LEASES, &leases) != 0 || file_names(&leases, &names) != 0)
        return;
    for (size_t i = 0; i < names.count; i++)
        if (strncmp(names.names[i], NEW, strlen(NEW)) == 0 &&
            lease_id_is_valid(names.names[i] + strlen(NEW)))
            (void)!unlinkat(owned_fd(&leases), names.names[i], 0);
    file_names_finish(&names);
}

static int image_lease_begin_as(const char *path, uint32_t lease_ms, const char *id,
                                struct lease *ret_lease)
{
    struct owned CLEANUP(owned_close) leases = OWNED_NONE;
    struct lease lease = {.holder = {.state = LEASE_RUNNING, .lease_ms = lease_ms}};
    int error = image_lease_open_leases(path, true, &leases);
    if (error)
        return error;
    memcpy(lease.id, id, sizeof(lease.id));
    (void)!snprintf(lease.path, sizeof(lease.path), "%s", path);
    image_lease_describe_own(&lease.holder);
    error = image_lease_make_file(&leases, &lease);
    if (!error || error == -EEXIST)
        *ret_lease = lease;
    return error;
}

int lease_begin(const char *path, uint32_t lease_ms, struct lease *ret_lease)
{
    char id[LEASE_ID_MAX];
    int error = image_lease_random_id(id);
    return error ? error : image_lease_begin_as(path, lease_ms, id, ret_lease);
}

void lease_host_id(const char *boot, char ret_id[LEASE_ID_MAX])
{
    char name[IMAGE_CHUNK_NAME];
    const struct image_digest digest = image_digest_of(boot, strlen(boot));
    image_chunk_name(&digest, name);
    memcpy(ret_id, name, LEASE_ID_MAX - 1);
    ret_id[LEASE_ID_MAX - 1] = '\0';
}

int lease_begin_host(const char *path, uint32_t lease_ms, struct lease *ret_lease)
{
    struct lease_holder own;
    char id[LEASE_ID_MAX];
    image_lease_describe_own(&own);
    lease_host_id(own.boot, id);
    int error = image_lease_begin_as(path, lease_ms, id, ret_lease);
    return error == -EEXIST ? 0 : error;
}

static bool image_lease_is_there(const struct owned *leases, const char *id, uint64_t generation)
{
    char name[NAME_MAX_BYTES];
    struct stat stat;
    image_lease_name_of(id, generation, name);
    return fstatat(owned_fd(leases), name, &stat, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The largest generation counts, also where earlier files were removed. */
static int image_lease_find_latest(const struct owned *leases, const char *id,
                                   uint64_t *ret_generation)
{
    size_t length = strlen(id);
    struct file_names names;
    int error = file_names(leases, &names);
    if (error)
        return error;
    for (size_t i = 0; i < names.count; i++) {
        const char *name = names.names[i];
        char again[NAME_MAX_BYTES];
        if (strncmp(name, id, length) != 0 || name[length] != '.')
            continue;
        uint64_t generation = strtoull(name + length + 1, NULL, 10);
        image_lease_name_of(id, generation, again);
        if (strcmp(name, again) == 0 && generation <= GENERATIONS && generation > *ret_generation)
            *ret_generation = generation;
    }
    file_names_finish(&names);
    return 0;
}

int lease_find(const char *path, const char *id, struct lease *ret_lease)
{
    struct owned CLEANUP(owned_close) leases = OWNED_NONE;
    struct lease lease = {0};
    char name[NAME_MAX_BYTES], block[BLOCK];
    uint64_t size = 0;
    if (!lease_id_is_valid(id))
        return -EBADMSG;
    int error = image_lease_open_leases(path, false, &leases);
    if (error)
        return error;
    memcpy(lease.id, id, LEASE_ID_MAX);
    (void)!snprintf(lease.path, sizeof(lease.path), "%s", path);
    error = image_lease_find_latest(&leases, id, &lease.generation);
    if (error)
        return error;
    /* NFS may have cached the list of names. */
    while (lease.generation < GENERATIONS &&
           image_lease_is_there(&leases, id, lease.generation + 1))
        lease.generation++;
    image_lease_name_of(id, lease.generation, name);
    error = file_read(&leases, name, block, BLOCK, &size);
    if (!error)
        error = size == BLOCK ? lease_decode(block, &lease.holder) : -EBADMSG;
    if (!error)
        *ret_lease = lease;
    return error;
}

bool lease_look(struct lease_sight *sight, const char *path, const char *id)
{
    struct lease now;
    int error = lease_find(path, id, &now);
    if (strcmp(sight->lease.id, id) != 0) {
        *sight = (struct lease_sight){.since_ns = 0};
        (void)!snprintf(sight->lease.id, sizeof(sight->lease.id), "%s", id);
    }
    const struct lease_holder *last = &sight->lease.holder;
    bool first = !sight->since_ns;
    bool changed = !error && (now.generation != sight->lease.generation ||
                              now.holder.beat != last->beat || now.holder.state != last->state);
    if (first || changed || (error && error != -EBADMSG))
        sight->since_ns = clock_now_ns();
    if (!error)
        sight->lease = now;
    sight->error = error;
    return changed && !first;
}

bool lease_is_silent(const struct lease_sight *sight, uint64_t ns)
{
    return sight->since_ns && clock_now_ns() - sight->since_ns > ns;
}

int lease_take(const struct lease *from, enum lease_state state, struct lease *ret_lease)
{
    struct owned CLEANUP(owned_close) leases = OWNED_NONE;
    struct lease lease = *from;
    if (from->generation >= GENERATIONS)
        return -EOVERFLOW;
    int error = image_lease_open_leases(from->path, false, &leases);
    if (error)
        return error;
    lease.generation++;
    lease.holder.state = state;
    lease.holder.beat = 0;
    lease.holder.reason[0] = '\0';
    image_lease_describe_own(&lease.holder);
    error = image_lease_make_file(&leases, &lease);
    if (!error)
        *ret_lease = lease;
    return error;
}

/* Overwritten in place: readers that have the file open would not see a replaced one. */
static int image_lease_write_over(const struct owned *leases, const char *name,
                                  const char block[BLOCK])
{
    struct owned CLEANUP(owned_close) file = OWNED_NONE;
    struct rlimit limit;
    struct stat stat;
    /* A larger write would end the program with a signal. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < BLOCK)
        return -EFBIG;
    int error = owned_take(
        openat(owned_fd(leases), name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), &file);
    if (error)
        return error;
    if (fstat(owned_fd(&file), &stat) != 0)
        return -errno;
    if (!S_ISREG(stat.st_mode) || !access_same_user(stat.st_uid, geteuid()) ||
        stat.st_size != BLOCK)
        return -EPERM;
    ssize_t count = pwrite(owned_fd(&file), block, BLOCK, 0);
    if (count != BLOCK)
        return count < 0 ? -errno : -EIO;
    return fdatasync(owned_fd(&file)) == 0 ? 0 : -errno;
}

int lease_renew(struct lease *lease, enum lease_state state)
{
    struct owned CLEANUP(owned_close) leases = OWNED_NONE;
    char name[NAME_MAX_BYTES], block[BLOCK];
    int error = image_lease_open_leases(lease->path, false, &leases);
    if (error)
        return error;
    lease->holder.state = state;
    lease->holder.beat++;
    image_lease_name_of(lease->id, lease->generation, name);
    image_lease_write_block(&lease->holder, block);
    error = image_lease_write_over(&leases, name, block);
    /* Checked last: another process may have taken the lease meanwhile. */
    return image_lease_is_there(&leases, lease->id, lease->generation + 1) ? -ESTALE : error;
}
