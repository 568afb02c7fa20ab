#include "state/image/image_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/base/files/access.h"
#include "state/base/files/folder.h"
#include "state/base/threads/fork.h"
#include "state/image/image_lease.h"

#define CHUNKS "chunks"
#define LOCK   "image_folder_lock"

/* How long to wait for the lock: an exclusive holder keeps it for a sweep; a shared one perhaps for
 * as long as writing an image takes, which is not waited for. */
#define LOCK_NS      (10 * NS_PER_S)
#define LOCK_STEP_NS (10 * NS_PER_MS)
/* Names to try, each a millisecond later than the one before. */
#define NAMES 1000

/* The open folders. A forked child closes their locks; otherwise it would hold them as long as it
 * lives. */
static struct image_folder *folders;
static pthread_mutex_t folders_lock = PTHREAD_MUTEX_INITIALIZER;

static void image_folder_in_child(void)
{
    for (struct image_folder *folder = folders; folder; folder = folder->next)
        owned_close(&folder->lock);
    folders = NULL;
}

FORK_PART = {.rank = FORK_TABLE, .lock = &folders_lock, .in_child = image_folder_in_child};

static void image_folder_enlist(struct image_folder *folder)
{
    pthread_mutex_lock(&folders_lock);
    folder->next = folders;
    folders = folder;
    pthread_mutex_unlock(&folders_lock);
}

static void image_folder_delist(const struct image_folder *folder)
{
    pthread_mutex_lock(&folders_lock);
    struct image_folder **at = &folders;
    while (*at && *at != folder)
        at = &(*at)->next;
    if (*at)
        *at = folder->next;
    pthread_mutex_unlock(&folders_lock);
}

static int image_folder_refuse(char *ret_problem, int error, const char *path, const char *name,
                               const char *why)
{
    snprintf(ret_problem, IMAGE_PROBLEM_MAX, "%.500s%s%.60s: %.300s", path, *name ? "/" : "", name,
             why);
    return error;
}

static int image_folder_refuse_error(char *ret_problem, int error, const char *path,
                                     const char *name)
{
    return image_folder_refuse(ret_problem, error, path, name,
                               error == -EPERM ? "it is not yours alone" : strerror(-error));
}

/* ---- opening ---- */

static int image_folder_find(const char *path, char ret_path[PATH_MAX], char *ret_problem)
{
    if (!realpath(path, ret_path))
        return image_folder_refuse_error(ret_problem, -errno, path, "");
    int error = folder_check_above(ret_path, ret_problem);
    if (!error && !folder_is_ours(ret_path, true))
        error =
            image_folder_refuse(ret_problem, -EPERM, ret_path, "",
                                "it is not a folder that only you can enter (of the mode 0700)");
    return error;
}

static int image_folder_open_chunks(struct image_folder *folder, bool make)
{
    if (make && mkdirat(owned_fd(&folder->folder), CHUNKS, 0700) != 0 && errno != EEXIST)
        return -errno;
    return file_folder(&folder->folder, CHUNKS, &folder->chunks);
}

/* A folder with other files is refused: a sweep would remove them. */
static int image_folder_check_empty(const struct image_folder *folder)
{
    struct file_names names;
    struct stat stat;
    if (fstatat(owned_fd(&folder->folder), LOCK, &stat, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    int error = file_names(&folder->folder, &names);
    if (error)
        return error;
    error = names.count != 0 ? -ENOTEMPTY : 0;
    file_names_finish(&names);
    return error;
}

static int image_folder_open_lock(struct image_folder *folder, bool make)
{
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (make ? O_CREAT : 0);
    struct stat stat;
    int error = owned_take(openat(owned_fd(&folder->folder), LOCK, flags, 0600), &folder->lock);
    if (error)
        return error == -ELOOP ? -EPERM : error;
    if (fstat(owned_fd(&folder->lock), &stat) != 0)
        return -errno;
    return S_ISREG(stat.st_mode) && access_same_user(stat.st_uid, geteuid()) &&
                   (stat.st_mode & 077) == 0
               ? 0
               : -EPERM;
}

/* Gives up after @patience_ns: the process that has the lock may be stopped. */
static int image_folder_take_lock(const struct owned *lock, int how, uint64_t patience_ns)
{
    for (uint64_t deadline = clock_now_ns() + patience_ns;;) {
        if (flock(owned_fd(lock), how | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (clock_now_ns() >= deadline)
            return -EBUSY;
        clock_sleep(LOCK_STEP_NS);
    }
}

/* If no other process uses the folder, remove what killed writers left; then share the lock. */
static int image_folder_lock_to_write(struct image_folder *folder)
{
    char ignored[IMAGE_PROBLEM_MAX];
    struct image_swept swept;
    if (image_folder_take_lock(&folder->lock, LOCK_EX, 0) == 0) {
        struct file_names names;
        bool unfinished = false;
        lease_sweep(&folder->folder);
        if (image_folder_names(folder, &names) == 0) {
            for (size_t i = 0; i < names.count; i++)
                unfinished = unfinished || !image_folder_is_whole(folder, names.names[i]);
            file_names_finish(&names);
        }
        /* What cannot be removed now does no harm: the next writer tries again. */
        if (unfinished)
            (void)!image_folder_sweep(folder, &swept, ignored);
    }
    return image_folder_take_lock(&folder->lock, LOCK_SH, LOCK_NS);
}

static int image_folder_lock(struct image_folder *folder, enum image_use use)
{
    switch (use) {
    case IMAGE_TO_WRITE:
        return image_folder_lock_to_write(folder);
    case IMAGE_TO_READ:
        return image_folder_take_lock(&folder->lock, LOCK_SH, LOCK_NS);
    case IMAGE_TO_SWEEP:
        break;
    }
    return image_folder_take_lock(&folder->lock, LOCK_EX, LOCK_NS);
}

static int image_folder_open_parts(struct image_folder *folder, enum image_use use,
                                   char *ret_problem)
{
    bool make = use == IMAGE_TO_WRITE;
    const char *part = "";
    int error = file_folder(NULL, folder->path, &folder->folder);
    if (!error && make)
        error = image_folder_check_empty(folder);
    if (error == -ENOTEMPTY)
        return image_folder_refuse(ret_problem, error, folder->path, "",
                                   "it holds other files; name an empty folder, or one to be made");
    if (!error) {
        part = LOCK;
        error = image_folder_open_lock(folder, make);
    }
    if (!error) {
        part = CHUNKS;
        error = image_folder_open_chunks(folder, make);
    }
    if (error == -ENOENT)
        return image_folder_refuse(ret_problem, error, folder->path, "",
                                   "there are no images: nothing was written there by reseat");
    return error ? image_folder_refuse_error(ret_problem, error, folder->path, part) : 0;
}

int image_folder_open(const char *path, enum image_use use, struct image_folder **ret_folder,
                      char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct image_folder *folder = calloc(1, sizeof(*folder));
    if (!folder)
        return image_folder_refuse_error(ret_problem, -ENOMEM, path, "");
    folder->folder = folder->chunks = folder->lock = OWNED_NONE;
    int error = fork_watch();
    image_folder_enlist(folder);
    if (!error)
        error = use == IMAGE_TO_WRITE ? folder_make_private(path, folder->path, ret_problem)
                                      : image_folder_find(path, folder->path, ret_problem);
    else
        image_folder_refuse_error(ret_problem, error, path, "");
    if (!error)
        error = image_folder_open_parts(folder, use, ret_problem);
    if (!error) {
        error = image_folder_lock(folder, use);
        if (error == -EBUSY)
            image_folder_refuse(ret_problem, error, folder->path, "",
                                use == IMAGE_TO_SWEEP
                                    ? "images are read or written there; try again later"
                                    : "images are removed there; try again later");
        else if (error)
            image_folder_refuse_error(ret_problem, error, folder->path, LOCK);
    }
    if (error)
        image_folder_close(folder);
    else
        *ret_folder = folder;
    return error;
}

void image_folder_close(struct image_folder *folder)
{
    if (!folder)
        return;
    image_folder_delist(folder);
    owned_close(&folder->lock);
    owned_close(&folder->chunks);
    owned_close(&folder->folder);
    free(folder);
}

/* ---- images in it ---- */

/* YYYYMMDDTHHMMSS.mmm-PID */
bool image_name_is_valid(const char *name)
{
    static const char shape[] = "00000000T000000.000-";
    size_t length = strlen(name);
    if (length <= strlen(shape) || length >= IMAGE_NAME_MAX)
        return false;
    for (size_t i = 0; i < length; i++) {
        bool number = i >= strlen(shape) || shape[i] == '0';
        if (number ? name[i] < '0' || name[i] > '9' : name[i] != shape[i])
            return false;
    }
    return true;
}

int image_folder_names(const struct image_folder *folder, struct file_names *ret_names)
{
    struct file_names all;
    int error = file_names(&folder->folder, &all);
    if (error)
        return error;
    size_t count = 0;
    for (size_t i = 0; i < all.count; i++)
        if (image_name_is_valid(all.names[i]))
            all.names[count++] = all.names[i];
        else
            free(all.names[i]);
    all.count = count;
    *ret_names = all;
    return 0;
}

bool image_folder_is_whole(const struct image_folder *folder, const char *name)
{
    char path[IMAGE_NAME_MAX + sizeof(IMAGE_MANIFEST) + 1];
    struct stat stat;
    snprintf(path, sizeof(path), "%s/%s", name, IMAGE_MANIFEST);
    if (fstatat(owned_fd(&folder->folder), path, &stat, AT_SYMLINK_NOFOLLOW) == 0 ||
        errno != ENOENT)
        return true;
    /* A link may have taken the place of an image that was moved away and needs its chunks. */
    return fstatat(owned_fd(&folder->folder), name, &stat, AT_SYMLINK_NOFOLLOW) == 0 &&
           !S_ISDIR(stat.st_mode);
}

static int image_folder_name_of(uint64_t ms, char ret_name[IMAGE_NAME_MAX])
{
    time_t seconds = (time_t)(ms / 1000);
    char time[16];
    struct tm utc;
    if (!gmtime_r(&seconds, &utc) || strftime(time, sizeof(time), "%Y%m%dT%H%M%S", &utc) == 0)
        return -EOVERFLOW;
    snprintf(ret_name, IMAGE_NAME_MAX, "%s.%03u-%u", time, (unsigned)(ms % 1000),
             (unsigned)getpid());
    return image_name_is_valid(ret_name) ? 0 : -EOVERFLOW;
}

/* When an image of that name was made; 0: the name holds no valid time. */
static uint64_t image_folder_ms_of(const char *name)
{
    char time[sizeof("YYYYMMDDTHHMMSS")], again[IMAGE_NAME_MAX];
    struct tm utc = {0};
    memcpy(time, name, sizeof(time) - 1);
    time[sizeof(time) - 1] = '\0';
    const char *end = strptime(time, "%Y%m%dT%H%M%S", &utc);
    time_t seconds = end && !*end ? timegm(&utc) : -1;
    if (seconds < 0)
        return 0;
    uint64_t ms = (uint64_t)seconds * 1000 + strtoul(name + sizeof(time), NULL, 10);
    return image_folder_name_of(ms, again) == 0 && strncmp(again, name, sizeof(time) + 3) == 0 ? ms
                                                                                               : 0;
}

/* Choose a name later than all others, whatever the clock says: the last image is the one that a
 * program is restored from and that is retained. */
int image_folder_begin(struct image_folder *folder, char ret_name[IMAGE_NAME_MAX],
                       struct owned *ret_image)
{
    struct file_names names;
    int error = image_folder_names(folder, &names);
    if (error)
        return error;
    uint64_t first = clock_wall_ms();
    for (size_t i = 0; i < names.count; i++) {
        uint64_t ms = image_folder_ms_of(names.names[i]);
        first = ms >= first ? ms + 1 : first;
    }
    file_names_finish(&names);
    error = -EEXIST;
    for (uint64_t ms = first; error == -EEXIST && ms < first + NAMES; ms++) {
        error = image_folder_name_of(ms, ret_name);
        if (!error && mkdirat(owned_fd(&folder->folder), ret_name, 0700) != 0)
            error = -errno;
    }
    if (error)
        return error;
    error = file_folder(&folder->folder, ret_name, ret_image);
    if (error)
        (void)!unlinkat(owned_fd(&folder->folder), ret_name, AT_REMOVEDIR);
    return error;
}

int image_folder_manifest(const struct image_folder *folder, const char *name,
                          struct image_manifest *ret_manifest, char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct owned CLEANUP(owned_close) image = OWNED_NONE;
    char *CLEANUP(cleanup_free) bytes = NULL;
    char file[IMAGE_NAME_MAX + sizeof(IMAGE_MANIFEST) + 1], why[IMAGE_PROBLEM_MAX];
    size_t size = 0;
    if (!image_name_is_valid(name))
        return image_folder_refuse(ret_problem, -ENOENT, folder->path, "",
                                   "an image has no such name");
    snprintf(file, sizeof(file), "%s/%s", name, IMAGE_MANIFEST);
    int error = file_folder(&folder->folder, name, &image);
    if (error)
        return image_folder_refuse_error(ret_problem, error, folder->path, name);
    error = file_read_all(&image, IMAGE_MANIFEST, IMAGE_MANIFEST_MAX, &bytes, &size);
    if (error == -EFBIG)
        return image_folder_refuse(ret_problem, -EBADMSG, folder->path, file, "it is too long");
    if (error)
        return image_folder_refuse_error(ret_problem, error, folder->path, file);
    error = image_manifest_decode(bytes, size, ret_manifest, why);
    if (error)
        image_folder_refuse(ret_problem, error, folder->path, file,
                            error == -EBADMSG ? why : strerror(-error));
    return error;
}

/* Open the folder of the image @name, and its manifest, whose lock says who uses the image. */
static int image_folder_open_image(const struct image_folder *folder, const char *name,
                                   struct owned *ret_image, struct owned *ret_manifest)
{
    int error = file_folder(&folder->folder, name, ret_image);
    return error ? error
                 : owned_take(openat(owned_fd(ret_image), IMAGE_MANIFEST,
                                     O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC),
                              ret_manifest);
}

int image_folder_hold(const struct image_folder *folder, const char *name, struct owned *ret_hold)
{
    struct owned CLEANUP(owned_close) image = OWNED_NONE;
    struct owned hold = OWNED_NONE;
    int error = image_folder_open_image(folder, name, &image, &hold);
    if (error)
        return error;
    error = image_folder_take_lock(&hold, LOCK_SH, LOCK_NS);
    if (error)
        owned_close(&hold);
    else
        *ret_hold = hold;
    return error;
}

/* ---- removing ---- */

/* Remove the files of the image @name. */
static int image_folder_empty(const struct image_folder *folder, const char *name)
{
    struct owned CLEANUP(owned_close) image = OWNED_NONE;
    struct file_names names = {0};
    int error = file_folder(&folder->folder, name, &image);
    if (!error)
        error = file_names(&image, &names);
    for (size_t i = 0; i < names.count; i++)
        if (unlinkat(owned_fd(&image), names.names[i], 0) != 0 && errno != ENOENT)
            error = -errno;
    file_names_finish(&names);
    return error;
}

static int image_folder_remove_folder(const struct image_folder *folder, const char *name)
{
    int error = image_folder_empty(folder, name);
    if (!error && unlinkat(owned_fd(&folder->folder), name, AT_REMOVEDIR) != 0)
        error = -errno;
    return error;
}

int image_folder_remove(struct image_folder *folder, const char *name)
{
    struct owned CLEANUP(owned_close) image = OWNED_NONE;
    struct owned CLEANUP(owned_close) manifest = OWNED_NONE;
    if (!image_name_is_valid(name))
        return -ENOENT;
    int error = image_folder_open_image(folder, name, &image, &manifest);
    if (!error)
        error = image_folder_take_lock(&manifest, LOCK_EX, 0);
    /* Without its manifest the folder is no image any more. */
    if (!error && unlinkat(owned_fd(&image), IMAGE_MANIFEST, 0) != 0)
        error = -errno;
    return error ? error : file_sync(&image);
}

/* The digests of all chunks that an image needs. */
struct named {
    struct image_digest *digests;
    size_t count;
};

static int image_folder_by_digest(const void *a, const void *b)
{
    return memcmp(a, b, IMAGE_DIGEST);
}

static int image_folder_add_named(struct named *named, const struct image_manifest *manifest)
{
    for (size_t i = 0; i < manifest->count; i++) {
        const struct image_record *record = &manifest->records[i];
        const struct image_blob *list = record->kind == IMAGE_CONTENTS ? &record->contents->digests
                                        : record->kind == IMAGE_BASES  ? &record->bases->digests
                                                                       : NULL;
        if (!list || !list->size)
            continue;
        size_t count = list->size / IMAGE_DIGEST;
        struct image_digest *more =
            reallocarray(named->digests, named->count + count, sizeof(*named->digests));
        if (!more)
            return -ENOMEM;
        memcpy(more + named->count, list->bytes, list->size);
        named->digests = more;
        named->count += count;
    }
    return 0;
}

static int image_folder_find_named(const struct image_folder *folder,
                                   const struct file_names *images, struct named *ret_named,
                                   char *ret_problem)
{
    char why[IMAGE_PROBLEM_MAX];
    for (size_t i = 0; i < images->count; i++) {
        struct image_manifest manifest = {0};
        if (!image_folder_is_whole(folder, images->names[i]))
            continue;
        int error = image_folder_manifest(folder, images->names[i], &manifest, why);
        if (error) {
            snprintf(ret_problem, IMAGE_PROBLEM_MAX,
                     "chunks are kept, because it is unknown which ones images use: %.800s", why);
            return error;
        }
        error = image_folder_add_named(ret_named, &manifest);
        image_manifest_finish(&manifest);
        if (error)
            return error;
    }
    if (ret_named->count)
        qsort(ret_named->digests, ret_named->count, sizeof(*ret_named->digests),
              image_folder_by_digest);
    return 0;
}

static int image_folder_sweep_chunks(const struct image_folder *folder, const struct named *named,
                                     struct image_swept *swept)
{
    struct file_names names;
    int error = file_names(&folder->chunks, &names);
    if (error)
        return error;
    for (size_t i = 0; !error && i < names.count; i++) {
        struct image_digest digest;
        struct stat stat;
        if (!image_chunk_name_read(names.names[i], &digest) ||
            (named->count && bsearch(&digest, named->digests, named->count, sizeof(*named->digests),
                                     image_folder_by_digest)) ||
            fstatat(owned_fd(&folder->chunks), names.names[i], &stat, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (unlinkat(owned_fd(&folder->chunks), names.names[i], 0) != 0) {
            error = -errno;
            continue;
        }
        swept->chunks++;
        swept->bytes += (uint64_t)stat.st_size;
    }
    file_names_finish(&names);
    return error;
}

int image_folder_sweep(struct image_folder *folder, struct image_swept *ret_swept,
                       char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct file_names images;
    struct image_swept swept = {0};
    struct named named = {0};
    ret_problem[0] = '\0';
    lease_sweep(&folder->folder);
    int error = image_folder_names(folder, &images);
    if (error)
        return error;
    error = image_folder_find_named(folder, &images, &named, ret_problem);
    bool known = !error;
    if (known)
        error = image_folder_sweep_chunks(folder, &named, &swept);
    else if (*ret_problem)
        error = 0;
    free(named.digests);
    /* Unfinished images last: while they are there, the next writer sweeps again. */
    for (size_t i = 0; !error && known && i < images.count; i++) {
        if (image_folder_is_whole(folder, images.names[i]))
            continue;
        error = image_folder_remove_folder(folder, images.names[i]);
        swept.images += !error;
    }
    file_names_finish(&images);
    if (!error)
        *ret_swept = swept;
    return error;
}

void image_folder_abandon(struct image_folder *folder, const char *name)
{
    char ignored[IMAGE_PROBLEM_MAX];
    struct image_swept swept;
    (void)!image_folder_empty(folder, name);
    if (image_folder_take_lock(&folder->lock, LOCK_EX, 0) == 0)
        (void)!image_folder_sweep(folder, &swept, ignored);
    (void)!image_folder_take_lock(&folder->lock, LOCK_SH, LOCK_NS);
}

/* ---- keeping the last ones ---- */

/* A later holder of the lease has images that an earlier one must not remove. */
static bool image_folder_is_of_same(const struct image_manifest *one,
                                    const struct image_manifest *of)
{
    const struct image_about *about = image_manifest_about(one);
    const struct image_about *others = image_manifest_about(of);
    const struct image_record *lease = image_manifest_find(one, IMAGE_LEASE);
    const struct image_record *has = image_manifest_find(of, IMAGE_LEASE);
    if (lease && has)
        return strcmp(lease->lease->id, has->lease->id) == 0 &&
               lease->lease->generation <= has->lease->generation;
    return about->pid == others->pid && strcmp(about->host, others->host) == 0 &&
           strcmp(about->program, others->program) == 0;
}

/* False also for an image that is unfinished or cannot be read. */
static bool image_folder_is_of(const struct image_folder *folder, const char *name,
                               const struct image_manifest *of)
{
    char ignored[IMAGE_PROBLEM_MAX];
    struct image_manifest manifest;
    if (!image_folder_is_whole(folder, name) ||
        image_folder_manifest(folder, name, &manifest, ignored) != 0)
        return false;
    bool is = image_folder_is_of_same(&manifest, of);
    image_manifest_finish(&manifest);
    return is;
}

int image_keep_last(const char *path, const char *image, uint64_t keep,
                    char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct image_folder *folder;
    struct file_names names = {0};
    struct image_manifest of;
    struct image_swept swept;
    uint64_t later = 0;
    size_t removed = 0;
    int error = image_folder_open(path, IMAGE_TO_SWEEP, &folder, ret_problem);
    if (error)
        return error;
    error = image_folder_manifest(folder, image, &of, ret_problem);
    if (error) {
        image_folder_close(folder);
        return error;
    }
    error = image_folder_names(folder, &names);
    for (size_t i = error ? 0 : names.count; i-- > 0 && !error;) {
        if (!image_folder_is_of(folder, names.names[i], &of) || later++ < keep)
            continue;
        error = image_folder_remove(folder, names.names[i]);
        removed += error == 0;
        error = error == -EBUSY ? 0 : error;
    }
    file_names_finish(&names);
    image_manifest_finish(&of);
    if (!error && removed)
        error = image_folder_sweep(folder, &swept, ret_problem);
    else if (error)
        snprintf(ret_problem, IMAGE_PROBLEM_MAX, "%s: %s", path, strerror(-error));
    image_folder_close(folder);
    return error;
}
