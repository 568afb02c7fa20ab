#include "state/image/image_write.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/image/image_chunk.h"

/* Bytes to be packed before it is decided from measurements whether packing is faster. */
#define MEASURED (4 * IMAGE_CHUNK)

/* A chunk in the folder. */
struct image_known_chunk {
    struct image_digest digest;
    struct image_digest base; /* zeros: none */
    uint32_t parts;           /* bits: the parts that differ from the base's */
};

/* The chunks of an object. The arrays of parts have IMAGE_PARTS for each chunk, the last one too.
 */
struct image_known_chunks {
    uint64_t id, count, size;
    struct image_known_chunk *chunks;
    struct image_digest *parts;
    uint64_t *stamps; /* of the parts; NULL: none were given */
};

struct writer {
    const struct image_plan *plan;
    const struct image_folder *folder;
    struct owned image;               /* its folder */
    struct image_jobs jobs;           /* of the sources */
    struct image_contents **contents; /* of each source */
    struct image_known_chunks *made;  /* of each source; owned */
    uint64_t total;
    _Atomic uint64_t done, stored, chunks, shared;
    /* Time and bytes so far, to decide whether to pack. */
    _Atomic uint64_t pack_ns, pack_in, pack_out, write_ns, write_bytes;
};

/* ---- what is known of the image before ---- */

static void image_write_known_chunks_finish(struct image_known_chunks *chunks)
{
    free(chunks->chunks);
    free(chunks->parts);
    free(chunks->stamps);
}

static int image_write_known_chunks_init(struct image_known_chunks *ret,
                                         const struct image_source *source)
{
    struct image_known_chunks chunks = {
        .id = source->id, .size = source->size, .count = image_chunk_count(source->size)};
    size_t parts = chunks.count * IMAGE_PARTS;
    chunks.chunks = calloc(chunks.count, sizeof(*chunks.chunks));
    chunks.parts = calloc(parts, sizeof(*chunks.parts));
    chunks.stamps = source->stamps ? calloc(parts, sizeof(*chunks.stamps)) : NULL;
    if (!chunks.chunks || !chunks.parts || (source->stamps && !chunks.stamps)) {
        image_write_known_chunks_finish(&chunks);
        return -ENOMEM;
    }
    if (source->stamps)
        memcpy(chunks.stamps, source->stamps,
               image_part_total(source->size) * sizeof(*chunks.stamps));
    *ret = chunks;
    return 0;
}

void image_known_finish(struct image_known *known)
{
    for (size_t i = 0; i < known->count; i++)
        image_write_known_chunks_finish(&known->objects[i]);
    free(known->objects);
    *known = (struct image_known){0};
}

static int image_write_by_id(const void *a, const void *b)
{
    const struct image_known_chunks *one = a, *other = b;
    return one->id < other->id ? -1 : one->id > other->id;
}

/* The chunks that the previous image has of the object, or NULL. */
static const struct image_known_chunks *image_write_known_of(const struct writer *w,
                                                             const struct image_source *source)
{
    const struct image_known *known = w->plan->known;
    const struct image_known_chunks key = {.id = source->id};
    if (!known || !source->stamps || !known->count)
        return NULL;
    const struct image_known_chunks *found =
        bsearch(&key, known->objects, known->count, sizeof(key), image_write_by_id);
    return found && found->size == source->size ? found : NULL;
}

/* Without memory the next image only looks at more bytes. */
static void image_write_know_all(struct writer *w)
{
    struct image_known *known = w->plan->known;
    if (!known)
        return;
    image_known_finish(known);
    known->objects = calloc(w->plan->count + 1, sizeof(*known->objects));
    for (size_t i = 0; known->objects && i < w->plan->count; i++)
        if (w->made[i].stamps) {
            known->objects[known->count++] = w->made[i];
            w->made[i] = (struct image_known_chunks){0};
        }
    if (known->count)
        qsort(known->objects, known->count, sizeof(*known->objects), image_write_by_id);
}

/* ---- chunks ---- */

/* True when the folder has a file of that name with a valid header. */
static bool image_write_has_file(const struct writer *w, const struct image_digest *digest,
                                 size_t size, struct image_form *ret_form)
{
    unsigned char header[IMAGE_CHUNK_HEADER];
    char name[IMAGE_CHUNK_NAME];
    uint64_t file_size;
    image_chunk_name(digest, name);
    return file_read(&w->folder->chunks, name, header, sizeof(header), &file_size) == 0 &&
           !image_chunk_check(header, file_size, size, ret_form);
}

/* True when the folder has the chunk in a file that needs no base. */
static bool image_write_has_base(const struct writer *w, const struct image_digest *digest,
                                 size_t size)
{
    struct image_form form;
    return image_write_has_file(w, digest, size, &form) && !form.parts;
}

/* True when the folder has the chunk, and its base where it needs one. */
static bool image_write_is_there(const struct writer *w, const struct image_digest *digest,
                                 size_t size, struct image_form *ret_form)
{
    return image_write_has_file(w, digest, size, ret_form) &&
           (!ret_form->parts || image_write_has_base(w, &ret_form->base, size));
}

/* Compare the measured time to pack a byte and write the result with the time to write it unpacked.
 */
static bool image_write_packs(struct writer *w)
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

static size_t image_write_pack(struct writer *w, struct image_worker *worker, const void *bytes,
                               size_t size, const void **ret_packed)
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

/* A file with some parts of a chunk never replaces a file: the latter may be the base of others. */
static int image_write_give_name(const struct writer *w, const char *temporary, const char *name,
                                 bool is_all)
{
    int from = owned_fd(&w->image), to = owned_fd(&w->folder->chunks);
    if (is_all)
        return renameat(from, temporary, to, name) == 0 ? 0 : -errno;
    int error = linkat(from, temporary, to, name, 0) == 0 ? 0 : -errno;
    if (unlinkat(from, temporary, 0) != 0 && !error)
        error = -errno;
    return error;
}

/* Write the file of a chunk. @bytes: the parts that @form names. */
static int image_write_store(struct writer *w, struct image_worker *worker,
                             const struct image_digest *digest, size_t index,
                             struct image_form *form, const void *bytes)
{
    unsigned char header[IMAGE_CHUNK_HEADER];
    size_t size = form->parts ? image_parts_size(form->parts, form->size) : form->size;
    struct file_part parts[] = {{header, sizeof(header)}, {bytes, size}};
    char temporary[32], name[IMAGE_CHUNK_NAME];
    size_t packed =
        image_write_packs(w) ? image_write_pack(w, worker, bytes, size, &parts[1].bytes) : 0;
    if (packed)
        parts[1].size = packed;
    else
        parts[1].bytes = bytes;
    form->packed = packed != 0;
    image_chunk_header(header, form);
    image_chunk_name(digest, name);
    snprintf(temporary, sizeof(temporary), form->parts ? "new-%zu-parts" : "new-%zu", index);
    uint64_t began = clock_now_ns();
    int error = file_make(&w->image, temporary, parts, ARRAY_SIZE(parts));
    if (!error)
        error = image_write_give_name(w, temporary, name, !form->parts);
    if (error)
        return error;
    atomic_fetch_add(&w->write_ns, clock_now_ns() - began);
    atomic_fetch_add(&w->write_bytes, parts[1].size);
    atomic_fetch_add(&w->stored, sizeof(header) + parts[1].size);
    return 0;
}

/* A chunk that is being written. */
struct keeping {
    struct writer *w;
    struct image_worker *worker;
    const struct image_source *source;
    size_t index; /* of the job */
    uint64_t chunk;
    size_t size;
    const void *bytes;                     /* all bytes, once they were read; or NULL */
    const struct image_known_chunk *known; /* or NULL */
    struct image_known_chunk *made;
};

static const void *image_write_look(const struct keeping *k, size_t at, size_t size, void *room)
{
    return k->source->look(k->source, k->chunk * IMAGE_CHUNK + at, size, room);
}

/* Digest parts [@first, @end) of a chunk, whose first part has the digest @ret[0]. */
static int image_write_digest_parts(struct keeping *k, size_t first, size_t end,
                                    struct image_digest *ret)
{
    size_t begin = first * IMAGE_PART,
           last = end * IMAGE_PART < k->size ? end * IMAGE_PART : k->size;
    const char *bytes = image_write_look(k, begin, last - begin, k->worker->room);
    if (!bytes)
        return -EFAULT;
    if (last - begin == k->size)
        k->bytes = bytes;
    for (size_t i = first; i < end; i++)
        ret[i] = image_part_digest(bytes + (i - first) * IMAGE_PART, image_part_size(k->size, i));
    return 0;
}

/* True when the stamps show that the part did not change since the previous image. */
static bool image_write_is_same(const uint64_t *stamps, const uint64_t *were, size_t part)
{
    return were && stamps[part] && stamps[part] == were[part];
}

/* Compute the digests of the parts; those that are known are not computed from bytes. @ret_changed:
 * bits of the parts that differ from @known, which may be NULL. */
static int image_write_digest_chunk(struct keeping *k, const struct image_known_chunks *known,
                                    struct image_digest *ret, uint32_t *ret_changed)
{
    const uint64_t first = k->chunk * IMAGE_PARTS;
    const uint64_t *stamps = known ? k->source->stamps + first : NULL;
    const uint64_t *were = known ? known->stamps + first : NULL;
    size_t count = image_part_count(k->size);
    uint32_t changed = 0;
    int error = 0;
    for (size_t i = 0, end; !error && i < count; i = end) {
        bool is_known = image_write_is_same(stamps, were, i);
        for (end = i + 1; end < count && image_write_is_same(stamps, were, end) == is_known;)
            end++;
        if (is_known)
            memcpy(&ret[i], &known->parts[first + i], (end - i) * sizeof(*ret));
        else
            error = image_write_digest_parts(k, i, end, ret);
    }
    for (size_t i = 0; !error && known && i < count; i++)
        if (!image_digest_same(&ret[i], &known->parts[first + i]))
            changed |= UINT32_C(1) << i;
    *ret_changed = changed;
    return error;
}

/* Write the parts that differ from the base to a file of their own. 1: write the whole chunk
 * instead. */
static int image_write_store_parts(struct keeping *k, uint32_t changed)
{
    struct image_form form = {.size = k->size};
    char *to = k->worker->unpacked;
    if (!k->known)
        return 1;
    bool based = k->known->parts != 0;
    form.base = based ? k->known->base : k->known->digest;
    form.parts = changed | k->known->parts;
    if (!form.parts || !image_parts_are_few(form.parts, k->size) ||
        image_digest_is_zero(&form.base) || !image_write_has_base(k->w, &form.base, k->size))
        return 1;
    for (size_t i = 0; i < image_part_count(k->size); i++) {
        size_t size = image_part_size(k->size, i);
        if (!((form.parts >> i) & 1))
            continue;
        const void *bytes = image_write_look(k, i * IMAGE_PART, size, k->worker->room);
        if (!bytes)
            return -EFAULT;
        memcpy(to, bytes, size);
        to += size;
    }
    k->bytes = NULL; /* the worker's room was used for parts */
    int error =
        image_write_store(k->w, k->worker, &k->made->digest, k->index, &form, k->worker->unpacked);
    /* Another process made the file meanwhile, or the file system has no links. */
    if (error == -EEXIST || error == -EPERM || error == -EOPNOTSUPP || error == -EMLINK)
        return 1;
    k->made->base = form.base;
    k->made->parts = form.parts;
    return error;
}

static int image_write_store_chunk(struct keeping *k, uint32_t changed)
{
    struct image_form form = {.size = k->size};
    int error = image_write_store_parts(k, changed);
    if (error <= 0)
        return error;
    if (!k->bytes)
        k->bytes = image_write_look(k, 0, k->size, k->worker->room);
    return k->bytes
               ? image_write_store(k->w, k->worker, &k->made->digest, k->index, &form, k->bytes)
               : -EFAULT;
}

static int image_write_keep_chunk(struct writer *w, struct image_worker *worker, size_t index)
{
    const struct image_job *job = &w->jobs.list[index];
    const struct image_source *source = &w->plan->sources[job->object];
    const struct image_known_chunks *known = image_write_known_of(w, source);
    struct image_known_chunks *made = &w->made[job->object];
    struct image_digest *parts = &made->parts[job->chunk * IMAGE_PARTS];
    struct keeping k = {.w = w,
                        .worker = worker,
                        .source = source,
                        .index = index,
                        .chunk = job->chunk,
                        .size = image_chunk_size(source->size, job->chunk),
                        .known = known ? &known->chunks[job->chunk] : NULL,
                        .made = &made->chunks[job->chunk]};
    struct image_form form;
    uint32_t changed;
    int error = image_write_digest_chunk(&k, known, parts, &changed);
    if (error)
        return error;
    k.made->digest =
        k.known && !changed ? k.known->digest : image_parts_digest(parts, image_part_count(k.size));
    if (image_digest_is_zero(&k.made->digest))
        return 0;
    atomic_fetch_add(&w->chunks, 1);
    if (!image_write_is_there(w, &k.made->digest, k.size, &form))
        return image_write_store_chunk(&k, changed);
    atomic_fetch_add(&w->shared, 1);
    k.made->base = form.base;
    k.made->parts = form.parts;
    return 0;
}

static int image_write_keep(void *data, struct image_worker *worker, size_t index)
{
    struct writer *w = data;
    const struct image_job *job = &w->jobs.list[index];
    const struct image_source *source = &w->plan->sources[job->object];
    struct image_contents *contents = w->contents[job->object];
    int error = w->plan->check ? w->plan->check(w->plan->data, atomic_load(&w->done), w->total) : 0;
    if (!error)
        error = image_write_keep_chunk(w, worker, index);
    if (error)
        return error;
    memcpy(contents->digests.bytes + job->chunk * IMAGE_DIGEST,
           &w->made[job->object].chunks[job->chunk].digest, IMAGE_DIGEST);
    atomic_fetch_add(&w->done, image_chunk_size(source->size, job->chunk));
    return 0;
}

/* ---- the image ---- */

static int image_write_take_small(const struct image_source *source,
                                  struct image_contents *contents)
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

static int image_write_add_jobs(struct writer *w, size_t source, struct image_contents *contents)
{
    uint64_t count = image_chunk_count(contents->size);
    contents->digests.bytes = calloc(count, IMAGE_DIGEST);
    if (!contents->digests.bytes)
        return -ENOMEM;
    contents->digests.size = count * IMAGE_DIGEST;
    int error = image_write_known_chunks_init(&w->made[source], &w->plan->sources[source]);
    return error ? error : image_jobs_add(&w->jobs, source, count);
}

static int image_write_add_contents(struct writer *w, size_t index)
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
    return source->size <= IMAGE_SMALL ? image_write_take_small(source, contents)
                                       : image_write_add_jobs(w, index, contents);
}

/* Name the bases of the image's chunks, so that a sweep does not remove them. */
static int image_write_add_bases(const struct writer *w)
{
    struct image_blob list = {0};
    size_t count = 0;
    for (size_t i = 0; i < w->jobs.count; i++)
        count += w->made[w->jobs.list[i].object].chunks[w->jobs.list[i].chunk].parts != 0;
    if (!count)
        return 0;
    struct image_record *record = image_manifest_add(w->plan->manifest, IMAGE_BASES);
    list.bytes = calloc(count, IMAGE_DIGEST);
    if (!record || !list.bytes) {
        free(list.bytes);
        return -ENOMEM;
    }
    for (size_t i = 0; i < w->jobs.count; i++) {
        const struct image_known_chunk *chunk =
            &w->made[w->jobs.list[i].object].chunks[w->jobs.list[i].chunk];
        if (!chunk->parts)
            continue;
        memcpy(list.bytes + list.size, &chunk->base, IMAGE_DIGEST);
        list.size += IMAGE_DIGEST;
    }
    record->bases->digests = list;
    return 0;
}

/* Once the manifest has its name and is on the disk, the image exists. */
static int image_write_publish(const struct writer *w)
{
    char *CLEANUP(cleanup_free) bytes = NULL;
    size_t size;
    int error = image_manifest_encode(w->plan->manifest, &bytes, &size);
    if (error)
        return error;
    error = file_sync(&w->folder->chunks);
    if (!error)
        error = file_replace(&w->image, IMAGE_MANIFEST, bytes, size, true);
    if (!error)
        error = file_sync(&w->image);
    return error ? error : file_sync(&w->folder->folder);
}

static int image_write_all(struct writer *w)
{
    int error = 0;
    w->contents = calloc(w->plan->count + 1, sizeof(*w->contents));
    w->made = calloc(w->plan->count + 1, sizeof(*w->made));
    if (!w->contents || !w->made)
        return -ENOMEM;
    for (size_t i = 0; !error && i < w->plan->count; i++)
        error = image_write_add_contents(w, i);
    if (!error)
        error = image_work(w->jobs.count, image_write_keep, w);
    if (!error)
        error = image_write_add_bases(w);
    return error ? error : image_write_publish(w);
}

static void image_write_say(char *ret_problem, const struct image_folder *folder, int error)
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
        image_write_say(ret_problem, folder, error);
        return error;
    }
    error = image_write_all(&w);
    owned_close(&w.image);
    if (error) {
        image_folder_abandon(folder, written.name);
        image_write_say(ret_problem, folder, error);
    } else {
        image_write_know_all(&w);
        written.bytes = w.total;
        written.stored = atomic_load(&w.stored);
        written.chunks = atomic_load(&w.chunks);
        written.shared = atomic_load(&w.shared);
        *ret_written = written;
    }
    for (size_t i = 0; w.made && i < plan->count; i++)
        image_write_known_chunks_finish(&w.made[i]);
    free(w.made);
    free(w.jobs.list);
    free(w.contents);
    return error;
}
