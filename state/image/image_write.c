#include "state/image/image_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/array.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/image/image_work.h"

/* Until it is whole. */
#define NEW_MANIFEST "new-manifest"

/* Before as much was packed and written nobody knows what is faster. */
#define MEASURED (4 * IMAGE_CHUNK)

struct image_known_chunks {
    uint64_t id, count;
    uint64_t *stamps;
    struct image_digest *digests;
};

struct job {
    uint32_t source;
    uint64_t chunk;
};

struct writer {
    const struct image_plan *plan;
    const struct image_folder *folder;
    struct owned image; /* its folder */
    struct job *jobs;
    size_t job_count;
    struct image_contents **contents; /* of each source */
    uint64_t total;
    _Atomic uint64_t done, stored, chunks, shared;
    /* What it takes, so far. */
    _Atomic uint64_t pack_ns, pack_in, pack_out, write_ns, write_bytes;
};

/* ---- what is known of the image before ---- */

static void known_chunks_finish(struct image_known_chunks *chunks)
{
    free(chunks->stamps);
    free(chunks->digests);
}

void image_known_finish(struct image_known *known)
{
    for (size_t i = 0; i < known->count; i++)
        known_chunks_finish(&known->objects[i]);
    free(known->objects);
    *known = (struct image_known){0};
}

static int by_id(const void *a, const void *b)
{
    const struct image_known_chunks *one = a, *other = b;
    return one->id < other->id ? -1 : one->id > other->id;
}

/* True when the chunk has the digest that it had. */
static bool is_known(const struct writer *w, const struct image_source *source, uint64_t chunk,
                     struct image_digest *ret_digest)
{
    const struct image_known *known = w->plan->known;
    const struct image_known_chunks key = {.id = source->id};
    if (!known || !source->stamps || !source->stamps[chunk] || !known->count)
        return false;
    const struct image_known_chunks *found =
        bsearch(&key, known->objects, known->count, sizeof(key), by_id);
    if (!found || found->count != image_chunk_count(source->size) ||
        found->stamps[chunk] != source->stamps[chunk])
        return false;
    *ret_digest = found->digests[chunk];
    return true;
}

static int know(struct image_known_chunks *ret, const struct image_source *source,
                const struct image_contents *contents)
{
    uint64_t count = contents->digests.size / IMAGE_DIGEST;
    struct image_known_chunks chunks = {.id = source->id, .count = count};
    chunks.stamps = malloc(count * sizeof(*chunks.stamps));
    chunks.digests = malloc(count * sizeof(*chunks.digests));
    if (!chunks.stamps || !chunks.digests) {
        known_chunks_finish(&chunks);
        return -ENOMEM;
    }
    memcpy(chunks.stamps, source->stamps, count * sizeof(*chunks.stamps));
    memcpy(chunks.digests, contents->digests.bytes, contents->digests.size);
    *ret = chunks;
    return 0;
}

/* Without memory less is known, and nothing wrong. */
static void know_all(const struct writer *w)
{
    const struct image_plan *plan = w->plan;
    if (!plan->known)
        return;
    image_known_finish(plan->known);
    plan->known->objects = calloc(plan->count + 1, sizeof(*plan->known->objects));
    for (size_t i = 0; plan->known->objects && i < plan->count; i++) {
        const struct image_source *source = &plan->sources[i];
        if (source->stamps && w->contents[i]->digests.size != 0 &&
            know(&plan->known->objects[plan->known->count], source, w->contents[i]) == 0)
            plan->known->count++;
    }
    if (plan->known->count)
        qsort(plan->known->objects, plan->known->count, sizeof(*plan->known->objects), by_id);
}

/* ---- chunks ---- */

/* It is in the folder already, as far as a look at its header tells. */
static bool is_there(const struct writer *w, const char *name, size_t size)
{
    unsigned char header[IMAGE_CHUNK_HEADER];
    uint64_t file_size;
    return image_file_read(&w->folder->chunks, name, header, sizeof(header), &file_size) == 0 &&
           !image_chunk_check(header, file_size, size);
}

/* What a byte takes to be packed and then written, against one that is only written. */
static bool packs(struct writer *w)
{
    double packing = (double)atomic_load(&w->pack_ns), in = (double)atomic_load(&w->pack_in);
    double writing = (double)atomic_load(&w->write_ns);
    double bytes = (double)atomic_load(&w->write_bytes);
    switch (w->plan->packing) {
    case IMAGE_PACKS:
        return true;
    case IMAGE_PACKS_NOT:
        return false;
    case IMAGE_PACKS_IF_FASTER:
        break;
    }
    if (in < (double)MEASURED || bytes == 0)
        return true;
    double smaller = (double)atomic_load(&w->pack_out) / in;
    return packing / in + smaller * writing / bytes < writing / bytes;
}

static size_t pack(struct writer *w, struct image_worker *worker, const void *bytes, size_t size,
                   const void **ret_packed)
{
    uint64_t began = clock_now_ns();
    size_t packed = image_pack(worker->packer, bytes, size, ret_packed);
    if (packed) {
        atomic_fetch_add(&w->pack_ns, clock_now_ns() - began);
        atomic_fetch_add(&w->pack_in, size);
        atomic_fetch_add(&w->pack_out, packed);
    }
    return packed;
}

static int store(struct writer *w, struct image_worker *worker, const char *name, size_t index,
                 const void *bytes, size_t size)
{
    unsigned char header[IMAGE_CHUNK_HEADER];
    struct image_part parts[] = {{header, sizeof(header)}, {bytes, size}};
    char temporary[32];
    size_t packed = packs(w) ? pack(w, worker, bytes, size, &parts[1].bytes) : 0;
    if (packed)
        parts[1].size = packed;
    else
        parts[1].bytes = bytes;
    image_chunk_header(header, size, packed != 0);
    snprintf(temporary, sizeof(temporary), "new-%zu", index);
    uint64_t began = clock_now_ns();
    int error = image_file_write(&w->image, temporary, parts, ARRAY_SIZE(parts));
    if (!error && renameat(owned_fd(&w->image), temporary, owned_fd(&w->folder->chunks), name) != 0)
        error = -errno;
    if (error)
        return error;
    atomic_fetch_add(&w->write_ns, clock_now_ns() - began);
    atomic_fetch_add(&w->write_bytes, parts[1].size);
    atomic_fetch_add(&w->stored, sizeof(header) + parts[1].size);
    return 0;
}

static int keep_chunk(struct writer *w, struct image_worker *worker, size_t index,
                      const struct image_source *source, uint64_t chunk,
                      struct image_digest *ret_digest)
{
    static const struct image_digest zero;
    size_t size = image_chunk_size(source->size, chunk);
    struct image_digest digest;
    char name[IMAGE_CHUNK_NAME];
    const void *bytes = NULL;
    bool known = is_known(w, source, chunk, &digest);
    if (!known) {
        bytes = source->look(source, chunk * IMAGE_CHUNK, size, worker->room);
        if (!bytes)
            return -EFAULT;
        digest = image_is_zero(bytes, size) ? zero : image_digest_of(bytes, size);
    }
    *ret_digest = digest;
    if (image_digest_is_zero(&digest))
        return 0;
    atomic_fetch_add(&w->chunks, 1);
    image_chunk_name(&digest, name);
    if (is_there(w, name, size)) {
        atomic_fetch_add(&w->shared, 1);
        return 0;
    }
    if (!bytes && !(bytes = source->look(source, chunk * IMAGE_CHUNK, size, worker->room)))
        return -EFAULT;
    return store(w, worker, name, index, bytes, size);
}

static int keep(void *data, struct image_worker *worker, size_t index)
{
    struct writer *w = data;
    const struct job *job = &w->jobs[index];
    const struct image_source *source = &w->plan->sources[job->source];
    struct image_contents *contents = w->contents[job->source];
    struct image_digest digest;
    int error = w->plan->check ? w->plan->check(w->plan->data, atomic_load(&w->done), w->total) : 0;
    if (!error)
        error = keep_chunk(w, worker, index, source, job->chunk, &digest);
    if (error)
        return error;
    memcpy(contents->digests.bytes + job->chunk * IMAGE_DIGEST, &digest, sizeof(digest));
    atomic_fetch_add(&w->done, image_chunk_size(source->size, job->chunk));
    return 0;
}

/* ---- the image ---- */

static int take_small(const struct image_source *source, struct image_contents *contents)
{
    char room[IMAGE_SMALL];
    size_t size = (size_t)source->size;
    const void *bytes = source->look(source, 0, size, room);
    if (!bytes)
        return -EFAULT;
    contents->small.bytes = malloc(size + 1);
    if (!contents->small.bytes)
        return -ENOMEM;
    memcpy(contents->small.bytes, bytes, size);
    contents->small.size = size;
    return 0;
}

static int add_jobs(struct writer *w, size_t source, struct image_contents *contents)
{
    uint64_t count = image_chunk_count(contents->size);
    contents->digests.bytes = calloc(count, IMAGE_DIGEST);
    if (!contents->digests.bytes)
        return -ENOMEM;
    contents->digests.size = count * IMAGE_DIGEST;
    struct job *jobs = reallocarray(w->jobs, w->job_count + count, sizeof(*jobs));
    if (!jobs)
        return -ENOMEM;
    w->jobs = jobs;
    for (uint64_t chunk = 0; chunk < count; chunk++)
        w->jobs[w->job_count++] = (struct job){(uint32_t)source, chunk};
    return 0;
}

static int add_contents(struct writer *w, size_t index)
{
    const struct image_source *source = &w->plan->sources[index];
    struct image_record *record = image_manifest_add(w->plan->manifest, IMAGE_CONTENTS);
    if (!record)
        return -ENOMEM;
    struct image_contents *contents = record->contents;
    w->contents[index] = contents;
    contents->id = source->id;
    contents->size = source->size;
    contents->written = source->written && source->size != 0;
    if (source->size > IMAGE_SIZE_MAX)
        return -EFBIG;
    w->total += source->size;
    if (!contents->written)
        return 0;
    return source->size <= IMAGE_SMALL ? take_small(source, contents)
                                       : add_jobs(w, index, contents);
}

/* From here on it is an image. */
static int publish(const struct writer *w)
{
    char *CLEANUP(cleanup_free) bytes = NULL;
    size_t size;
    int error = image_manifest_encode(w->plan->manifest, &bytes, &size);
    if (error)
        return error;
    const struct image_part part = {bytes, size};
    error = image_file_sync(&w->folder->chunks);
    if (!error)
        error = image_file_write(&w->image, NEW_MANIFEST, &part, 1);
    if (!error &&
        renameat(owned_fd(&w->image), NEW_MANIFEST, owned_fd(&w->image), IMAGE_MANIFEST) != 0)
        error = -errno;
    if (!error)
        error = image_file_sync(&w->image);
    return error ? error : image_file_sync(&w->folder->folder);
}

static int write_all(struct writer *w)
{
    int error = 0;
    w->contents = calloc(w->plan->count + 1, sizeof(*w->contents));
    if (!w->contents)
        return -ENOMEM;
    for (size_t i = 0; !error && i < w->plan->count; i++)
        error = add_contents(w, i);
    if (!error)
        error = image_work(w->job_count, keep, w);
    return error ? error : publish(w);
}

static void say(char *ret_problem, const struct image_folder *folder, int error)
{
    snprintf(ret_problem, IMAGE_PROBLEM_MAX, "no image was written to %.500s: %.300s", folder->path,
             error == -EFAULT  ? "some of the program's memory cannot be read"
             : error == -EFBIG ? "files may not become as long (ulimit -f)"
                               : strerror(-error));
}

int image_write(struct image_folder *folder, const struct image_plan *plan,
                struct image_written *ret_written, char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct writer w = {.plan = plan, .folder = folder, .image = OWNED_NONE};
    struct image_written written = {0};
    int error = image_folder_begin(folder, written.name, &w.image);
    if (error) {
        say(ret_problem, folder, error);
        return error;
    }
    error = write_all(&w);
    owned_close(&w.image);
    if (error) {
        image_folder_abandon(folder, written.name);
        say(ret_problem, folder, error);
    } else {
        know_all(&w);
        written.bytes = w.total;
        written.stored = atomic_load(&w.stored);
        written.chunks = atomic_load(&w.chunks);
        written.shared = atomic_load(&w.shared);
        *ret_written = written;
    }
    free(w.jobs);
    free(w.contents);
    return error;
}
