#include "state/image/image_read.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/image/image_chunk.h"

struct reader {
    const struct image_folder *folder;
    const struct image_reading *reading;
    struct image_jobs jobs; /* jobs for the sinks */
    uint64_t total;
    _Atomic uint64_t done;
    pthread_mutex_t lock; /* guards `problem`: the first one counts */
    char *problem;
    bool failed;
};

static int image_read_refuse(struct reader *r, const struct image_job *job, const char *name,
                             int error, const char *why)
{
    const struct image_contents *contents = r->reading->sinks[job->object].contents;
    uint64_t at = job->chunk * IMAGE_CHUNK;
    pthread_mutex_lock(&r->lock);
    if (!r->failed)
        snprintf(r->problem, IMAGE_PROBLEM_MAX,
                 "%.500s/chunks/%s (object %#llx, bytes from %llu): %.200s", r->folder->path, name,
                 (unsigned long long)contents->id, (unsigned long long)at, why);
    r->failed = true;
    pthread_mutex_unlock(&r->lock);
    return error;
}

/* Read a chunk's file to the worker's room. */
static int image_read_file(struct reader *r, struct image_worker *worker,
                           const struct image_job *job, const char *name, size_t *ret_size)
{
    uint64_t file_size;
    int error = file_read(&r->folder->chunks, name, worker->room, IMAGE_CHUNK_FILE_MAX, &file_size);
    if (error)
        return image_read_refuse(r, job, name, error,
                                 error == -ENOENT  ? "it is missing"
                                 : error == -EPERM ? "it is not a file of yours alone"
                                                   : strerror(-error));
    if (file_size > IMAGE_CHUNK_FILE_MAX)
        return image_read_refuse(r, job, name, -EBADMSG, "its file is too long");
    *ret_size = (size_t)file_size;
    return 0;
}

static int image_read_chunk(struct reader *r, struct image_worker *worker,
                            const struct image_job *job, size_t size, char *ret)
{
    struct image_digest digest =
        image_contents_digest(r->reading->sinks[job->object].contents, job->chunk);
    struct image_digest base;
    char name[IMAGE_CHUNK_NAME];
    size_t file_size;
    image_chunk_name(&digest, name);
    int error = image_read_file(r, worker, job, name, &file_size);
    if (error)
        return error;
    const char *wrong =
        image_unpack(worker->packer, worker->room, file_size, &digest, size, ret, &base);
    if (!wrong && !image_digest_is_zero(&base)) {
        image_chunk_name(&base, name);
        error = image_read_file(r, worker, job, name, &file_size);
        if (error)
            return error;
        wrong = image_unpack_base(worker->packer, worker->room, file_size, &digest, size, ret);
    }
    return wrong ? image_read_refuse(r, job, name, -EBADMSG, wrong) : 0;
}

static int image_read_take(void *data, struct image_worker *worker, size_t index)
{
    struct reader *r = data;
    const struct image_job *job = &r->jobs.list[index];
    const struct image_sink *sink = &r->reading->sinks[job->object];
    struct image_digest digest = image_contents_digest(sink->contents, job->chunk);
    size_t size = image_chunk_size(sink->contents->size, job->chunk);
    char *at = sink->bytes ? sink->bytes + job->chunk * IMAGE_CHUNK : worker->unpacked;
    int error = r->reading->check
                    ? r->reading->check(r->reading->data, atomic_load(&r->done), r->total)
                    : 0;
    if (error)
        return error;
    if (!image_digest_is_zero(&digest))
        error = image_read_chunk(r, worker, job, size, at);
    else if (sink->bytes && !sink->zero)
        memset(at, 0, size);
    atomic_fetch_add(&r->done, size);
    return error;
}

static int image_read_add_sink(struct reader *r, size_t index)
{
    const struct image_sink *sink = &r->reading->sinks[index];
    const struct image_contents *contents = sink->contents;
    uint64_t count = contents->digests.size / IMAGE_DIGEST;
    r->total += count ? contents->size : 0;
    if (contents->small.size && sink->bytes)
        memcpy(sink->bytes, contents->small.bytes, contents->small.size);
    return count ? image_jobs_add(&r->jobs, index, count) : 0;
}

int image_read(const struct image_folder *folder, const struct image_reading *reading,
               char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct reader r = {.folder = folder,
                       .reading = reading,
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .problem = ret_problem};
    int error = 0;
    for (size_t i = 0; !error && i < reading->count; i++)
        error = image_read_add_sink(&r, i);
    if (!error)
        error = image_work(r.jobs.count, image_read_take, &r);
    if (error && !r.failed)
        snprintf(ret_problem, IMAGE_PROBLEM_MAX, "%.500s: %.300s", folder->path, strerror(-error));
    free(r.jobs.list);
    return error;
}

int image_verify(const struct image_folder *folder, const struct image_manifest *manifest,
                 int (*check)(void *data, uint64_t done, uint64_t total), void *data,
                 char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct image_sink *sinks = calloc(manifest->count + 1, sizeof(*sinks));
    struct image_reading reading = {.sinks = sinks, .check = check, .data = data};
    if (!sinks) {
        snprintf(ret_problem, IMAGE_PROBLEM_MAX, "%s", strerror(ENOMEM));
        return -ENOMEM;
    }
    for (size_t i = 0; i < manifest->count; i++)
        if (manifest->records[i].kind == IMAGE_CONTENTS)
            sinks[reading.count++].contents = manifest->records[i].contents;
    int error = image_read(folder, &reading, ret_problem);
    free(sinks);
    return error;
}
