#include "agent/cli/image/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/image/image_read.h"

#define PREFIX ".process-"
#define LOG    "criu.log"
/* An attempt fails only if another command's sweep takes the new folder first. */
#define TRIES 100

/* ---- the folder ---- */

static void process_image_empty(int fd)
{
    CLEANUP(cleanup_free) struct dirent **names = NULL;
    int count = scandirat(fd, ".", &names, NULL, NULL);

    for (int i = 0; i < count; i++) {
        (void)!unlinkat(fd, names[i]->d_name, 0);
        free(names[i]);
    }
}

/** Remove the folders that killed commands left: a folder in use is locked. */
static void process_image_sweep(const struct image_folder *folder)
{
    CLEANUP(cleanup_free) struct dirent **names = NULL;
    int parent = owned_fd(&folder->folder), count = scandirat(parent, ".", &names, NULL, NULL);

    for (int i = 0; i < count; i++) {
        bool ours = strncmp(names[i]->d_name, PREFIX, strlen(PREFIX)) == 0;
        CLEANUP(cleanup_close)
        int fd =
            ours ? openat(parent, names[i]->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                 : -1;
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            process_image_empty(fd);
            (void)!unlinkat(parent, names[i]->d_name, AT_REMOVEDIR);
        }
        free(names[i]);
    }
}

/** Lock the folder. False: another command's sweep locked or removed it first. */
static bool process_image_is_taken(const struct process_files *files)
{
    struct stat opened, named;

    return flock(files->fd, LOCK_EX | LOCK_NB) == 0 && fstat(files->fd, &opened) == 0 &&
           lstat(files->path, &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

/** Returns 0, -EAGAIN (another command's sweep took it) or -errno. */
static int process_image_make_files(const char *parent, struct process_files *files)
{
    if (paths_join(parent, PREFIX, files->path) != 0 ||
        strlen(files->path) + sizeof("XXXXXX/" LOG) > PATH_MAX)
        return -ENAMETOOLONG;
    strcat(files->path, "XXXXXX");
    if (!mkdtemp(files->path))
        return -errno;
    files->fd = open(files->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (files->fd < 0)
        return errno == ENOENT ? -EAGAIN : -errno;
    if (process_image_is_taken(files))
        return paths_join(files->path, LOG, files->log);
    close(files->fd);
    files->fd = -1;
    return -EAGAIN;
}

int process_files_begin(const struct image_folder *folder, struct process_files *ret_files)
{
    int error = -EAGAIN;

    ret_files->fd = -1;
    process_image_sweep(folder);
    for (unsigned i = 0; i < TRIES && error == -EAGAIN; i++)
        error = process_image_make_files(folder->path, ret_files);
    if (error)
        process_files_end(ret_files);
    return error;
}

void process_files_end(struct process_files *files)
{
    if (files->fd < 0)
        return;
    process_image_empty(files->fd);
    (void)!rmdir(files->path);
    close(files->fd);
    files->fd = -1;
}

const char *process_files_keep_log(const struct image_folder *folder, struct process_files *files)
{
    char kept[PATH_MAX];

    if (paths_join(folder->path, LOG, kept) == 0 && rename(files->log, kept) == 0)
        strcpy(files->log, kept);
    return files->log;
}

/* ---- writing ---- */

struct mapped {
    char *bytes; /* NULL: the file is empty */
    size_t size;
};

struct writing {
    struct image_manifest manifest;
    struct image_source *sources;
    struct mapped *mapped;
    size_t count, mapped_count;
};

static const void *process_image_look(const struct image_source *source, uint64_t at, size_t size,
                                      void *room)
{
    const struct mapped *mapped = source->data;

    (void)size, (void)room;
    return mapped->bytes + at;
}

/** The name by which the program registers: the last part of its command's path. */
static char *process_image_name_of(pid_t pid)
{
    char path[64], text[256] = "";

    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    CLEANUP(cleanup_fclose) FILE *file = fopen(path, "re");
    if (file)
        (void)!fread(text, 1, sizeof(text) - 1, file);
    const char *slash = strrchr(text, '/');
    return strdup(slash ? slash + 1 : text);
}

static int process_image_describe(struct writing *w, const struct parked *parked, bool session)
{
    struct image_record *about = image_manifest_add(&w->manifest, IMAGE_ABOUT);
    struct utsname host;

    if (!about)
        return -ENOMEM;
    about->about->created_ms = clock_wall_ms();
    about->about->pid = (uint64_t)parked->pid;
    about->about->program = process_image_name_of(parked->pid);
    about->about->host = strdup(uname(&host) == 0 ? host.nodename : "");
    about->about->release = strdup(RESEAT_VERSION);
    about->about->reason = strdup("process");
    struct image_record *process = image_manifest_add(&w->manifest, IMAGE_PROCESS);
    if (!process)
        return -ENOMEM;
    process->process->box = parked->box;
    process->process->session = session;
    return 0;
}

static int process_image_map(int folder, const char *name, struct mapped *ret_mapped)
{
    CLEANUP(cleanup_close) int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat is;

    if (fd < 0 || fstat(fd, &is) != 0)
        return -errno;
    if (!S_ISREG(is.st_mode))
        return -EBADMSG;
    ret_mapped->size = (size_t)is.st_size;
    if (is.st_size == 0)
        return 0;
    void *bytes = mmap(NULL, ret_mapped->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return -errno;
    ret_mapped->bytes = bytes;
    return 0;
}

static int process_image_add_file(struct writing *w, int folder, const char *name)
{
    struct image_record *record = image_manifest_add(&w->manifest, IMAGE_FILE);
    struct mapped *mapped = &w->mapped[w->mapped_count];

    if (!record || !(record->file->name = strdup(name)))
        return -ENOMEM;
    record->file->id = ++w->mapped_count;
    int error = process_image_map(folder, name, mapped);
    w->sources[w->count++] = (struct image_source){.id = record->file->id,
                                                   .size = mapped->size,
                                                   .written = mapped->size != 0,
                                                   .look = process_image_look,
                                                   .data = mapped};
    return error;
}

static int process_image_add_files(struct writing *w, int folder)
{
    CLEANUP(cleanup_free) struct dirent **names = NULL;
    int count = scandirat(folder, ".", &names, NULL, alphasort), error = count < 0 ? -errno : 0;

    w->sources = calloc((size_t)(count > 0 ? count : 0) + 1, sizeof(*w->sources));
    w->mapped = calloc((size_t)(count > 0 ? count : 0) + 1, sizeof(*w->mapped));
    if (!error && (!w->sources || !w->mapped))
        error = -ENOMEM;
    for (int i = 0; i < count; i++) {
        if (!error && names[i]->d_name[0] != '.' && strcmp(names[i]->d_name, LOG) != 0)
            error = process_image_add_file(w, folder, names[i]->d_name);
        free(names[i]);
    }
    return error;
}

int process_image_write(struct image_folder *folder, const struct process_files *files,
                        const struct parked *parked, bool session,
                        struct image_written *ret_written, char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct writing w = {.count = 0};
    int error = process_image_describe(&w, parked, session);

    if (!error)
        error = process_image_add_files(&w, files->fd);
    if (error) {
        snprintf(ret_problem, IMAGE_PROBLEM_MAX, "%.900s: %s", files->path, strerror(-error));
    } else {
        const struct image_plan plan = {
            .manifest = &w.manifest, .sources = w.sources, .count = w.count};
        error = image_write(folder, &plan, ret_written, ret_problem);
    }
    for (size_t i = 0; i < w.mapped_count; i++)
        if (w.mapped[i].bytes)
            munmap(w.mapped[i].bytes, w.mapped[i].size);
    free(w.mapped);
    free(w.sources);
    image_manifest_finish(&w.manifest);
    return error;
}

/* ---- reading ---- */

const struct image_process *process_image_process(const struct image_manifest *manifest)
{
    const struct image_record *record = image_manifest_find(manifest, IMAGE_PROCESS);

    return record ? record->process : NULL;
}

/** Create and map a file of @size bytes. -EEXIST: the image names two files the same. */
static int process_image_make(int folder, const char *name, size_t size, char **ret_bytes)
{
    CLEANUP(cleanup_close)
    int fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return -errno;
    *ret_bytes = NULL;
    if (size == 0)
        return 0;
    /* A full disk fails here, rather than with SIGBUS when the mapping is written. */
    int error = -posix_fallocate(fd, 0, (off_t)size);
    void *bytes = error ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return error ? error : -errno;
    *ret_bytes = bytes;
    return 0;
}

static int process_image_make_all(const struct image_manifest *manifest, int folder,
                                  struct image_sink *sinks, size_t *ret_count, char *ret_problem)
{
    for (size_t i = 0; i < manifest->count; i++) {
        const struct image_record *record = &manifest->records[i];
        const struct image_contents *contents =
            record->kind == IMAGE_FILE ? image_manifest_contents(manifest, record->file->id) : NULL;
        if (record->kind != IMAGE_FILE)
            continue;
        struct image_sink sink = {.contents = contents, .zero = true};
        int error = contents ? process_image_make(folder, record->file->name,
                                                  (size_t)contents->size, &sink.bytes)
                             : -EBADMSG;
        if (error) {
            snprintf(ret_problem, IMAGE_PROBLEM_MAX, "the file %.200s of its process: %s",
                     record->file->name,
                     error == -EBADMSG  ? "its bytes are missing"
                     : error == -EEXIST ? "it is there twice"
                                        : strerror(-error));
            return error;
        }
        if (sink.bytes)
            sinks[(*ret_count)++] = sink;
    }
    return 0;
}

int process_image_read(const struct image_folder *folder, const struct image_manifest *manifest,
                       const struct process_files *files, char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct image_sink *sinks = calloc(manifest->count + 1, sizeof(*sinks));
    size_t count = 0;

    if (!sinks) {
        snprintf(ret_problem, IMAGE_PROBLEM_MAX, "%s", strerror(ENOMEM));
        return -ENOMEM;
    }
    int error = process_image_make_all(manifest, files->fd, sinks, &count, ret_problem);
    if (!error) {
        const struct image_reading reading = {.sinks = sinks, .count = count};
        error = image_read(folder, &reading, ret_problem);
    }
    for (size_t i = 0; i < count; i++)
        munmap(sinks[i].bytes, (size_t)sinks[i].contents->size);
    free(sinks);
    return error;
}
