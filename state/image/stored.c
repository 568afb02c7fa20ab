#include "state/image/stored.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "state/base/array.h"
#include "state/base/log.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/work.h"
#include "state/image/image_graph.h"
#include "state/image/image_read.h"
#include "state/memory/mapping.h"
#include "state/memory/memory.h"
#include "state/move/move_priv.h"
#include "state/transfer/transfer.h"

/* Smaller host copies share pages with other data, so giving them back frees nothing. */
#define WORTH ((size_t)64 << 10)

/* One root to be written, with the gate open. */
struct item {
    struct memory *root; /* held */
    struct host_copy *host_copy;
    char *bytes; /* its bytes; NULL: it was never written */
    bool steady; /* nothing writes there while the program is suspended */
    uint64_t version;
};

/* One root whose bytes are only in the image. */
struct away {
    struct object_weak root;
    char *bytes;
    uint64_t version;
    struct image_contents *contents; /* of `manifest` */
};

/* Guarded by the movers' lock. */
static struct {
    char path[PATH_MAX], image[IMAGE_NAME_MAX];
    struct owned hold;
    struct image_manifest manifest;
    struct away *aways;
    size_t count;
    bool touched; /* an attempt to fill host memory wrote to some of it */
} stored = {.hold = {.fd = -1}};
static _Atomic uint64_t bytes_away;

uint64_t stored_bytes(void)
{
    return atomic_load(&bytes_away);
}

static void stored_forget(void)
{
    owned_close(&stored.hold);
    image_manifest_finish(&stored.manifest);
    free(stored.aways);
    stored.aways = NULL;
    stored.count = 0;
    stored.touched = false;
    atomic_store(&bytes_away, 0);
}

/* A forked child cannot use these objects: its drivers are gone. The image belongs to its parent.
 */
static void stored_in_child(void)
{
    owned_close(&stored.hold);
    stored.count = 0;
    atomic_store(&bytes_away, 0);
}

FORK_PART = {.rank = FORK_TABLE, .in_child = stored_in_child};

/* ---- writing ---- */

struct storing {
    struct image_making image;
    struct item *items;
    size_t count;
};

/* True when the program cannot write to its host memory: it does not know the address. Gate closed.
 */
static bool stored_is_steady(struct memory *root)
{
    bool ours = root->shadow_copy || (root->host_copy && root->host_copy->ours);
    return ours && !root->uses_svm && !map_any(root) && context_is_suspended(root->context, 0);
}

static int stored_add_item(struct storing *s, struct memory *root)
{
    uint64_t version = atomic_load(&root->version);
    bool has = replica_is_latest(root, RESIDENCE_HOST);
    if (!context_is_suspended(root->context, 0))
        return image_making_fail(&s->image, -EBUSY, "some of the program is not suspended");
    if (!has)
        return image_making_fail(&s->image, -ENODATA,
                                 "some of what the program has is lost with a device");
    if (!array_make_room(&s->items, s->count, sizeof(*s->items)))
        return -ENOMEM;
    struct item *item = &s->items[s->count++];
    bool there = version != 0 && (root->shadow_copy || root->host_copy);
    object_hold(root);
    *item = (struct item){.root = root,
                          .host_copy = host_copy_ref(root->host_copy),
                          .bytes = there ? memory_host_bytes(root) : NULL,
                          .steady = stored_is_steady(root),
                          .version = version};
    return 0;
}

static int stored_collect(struct storing *s)
{
    int error = gate_close(s->image.request->move.deadline_ns) == 0 ? 0 : -ETIMEDOUT;
    uintptr_t cursor = 0;
    struct memory *memory;
    if (error)
        return error;
    error = graph_describe(&s->image.manifest);
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        if (!error && memory->root == memory)
            error = stored_add_item(s, memory);
    gate_open();
    return error;
}

static void stored_let_go(struct storing *s)
{
    for (size_t i = 0; i < s->count; i++) {
        host_copy_unref(s->items[i].host_copy);
        object_unhold(s->items[i].root);
    }
    free(s->items);
    image_manifest_finish(&s->image.manifest);
}

static const void *stored_look(const struct image_source *source, uint64_t at, size_t size,
                               void *room)
{
    const struct item *item = source->data;
    if (item->steady)
        return item->bytes + at;
    host_copy_user_memory(room, item->bytes + at, size);
    return room;
}

static int stored_write_image(struct storing *s, struct image_folder *folder, char *ret_problem)
{
    struct image_source *sources = calloc(s->count + 1, sizeof(*sources));
    if (!sources)
        return -ENOMEM;
    for (size_t i = 0; i < s->count; i++)
        sources[i] = (struct image_source){.id = (uintptr_t)s->items[i].root,
                                           .size = s->items[i].root->size,
                                           .written = s->items[i].bytes != NULL,
                                           .look = stored_look,
                                           .data = &s->items[i]};
    int error = image_making_write(
        &s->image, folder, (struct image_plan){.sources = sources, .count = s->count}, ret_problem);
    free(sources);
    return error;
}

/* ---- giving back ---- */

/* Give back the whole pages within @bytes; the bytes around them stay and are overwritten with the
 * same content later. */
static size_t stored_give_back(char *bytes, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)bytes + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)bytes + size) & ~(page - 1);
    if (begin >= end)
        return 0;
    /* Memory that a server shares is a file's; of other memory this is refused. */
    return madvise((void *)begin, end - begin, MADV_REMOVE) == 0 ||
                   madvise((void *)begin, end - begin, MADV_DONTNEED) == 0
               ? end - begin
               : 0;
}

/* True when the object is unchanged since it was written. Gate closed. */
static bool stored_is_same(const struct item *item)
{
    struct memory *root = item->root;
    return item->steady && item->bytes && root->size >= WORTH && object_refs(root) != 0 &&
           atomic_load(&root->version) == item->version && stored_is_steady(root) &&
           memory_host_bytes(root) == item->bytes && replica_is_latest(root, RESIDENCE_HOST);
}

static struct image_contents *stored_contents_of(const struct image_manifest *manifest, size_t *at,
                                                 uint64_t id)
{
    /* Records are in the order of the items. */
    for (; *at < manifest->count; (*at)++)
        if (manifest->records[*at].kind == IMAGE_CONTENTS &&
            manifest->records[*at].contents->id == id)
            return manifest->records[(*at)++].contents;
    return NULL;
}

static int stored_release_memory(struct storing *s)
{
    size_t at = 0;
    struct away *aways = calloc(s->count + 1, sizeof(*aways));
    if (!aways)
        return -ENOMEM;
    if (gate_close(s->image.request->move.deadline_ns) != 0) {
        free(aways);
        return -ETIMEDOUT;
    }
    stored.aways = aways;
    for (size_t i = 0; i < s->count; i++) {
        const struct item *item = &s->items[i];
        struct image_contents *contents =
            stored_contents_of(&s->image.manifest, &at, (uintptr_t)item->root);
        size_t freed =
            contents && stored_is_same(item) ? stored_give_back(item->bytes, item->root->size) : 0;
        if (!freed)
            continue;
        s->image.report->freed += freed;
        stored.aways[stored.count++] =
            (struct away){object_weak(item->root), item->bytes, item->version, contents};
    }
    gate_open();
    /* Keep the digests in memory, so that what is read back is checked against what was written
     * even if the image's manifest changes. */
    stored.manifest = s->image.manifest;
    s->image.manifest = (struct image_manifest){0};
    atomic_store(&bytes_away, s->image.report->freed);
    return 0;
}

static int stored_put_image(struct storing *s)
{
    char problem[IMAGE_PROBLEM_MAX] = "";
    struct image_folder *folder = NULL;
    struct owned hold = OWNED_NONE;
    if (stored.count) {
        (void)!snprintf(problem, sizeof(problem), "it is in the image %.400s/%s already",
                        stored.path, stored.image);
        return image_making_fail(&s->image, -EALREADY, problem);
    }
    int error = graph_describe_program(&s->image.manifest, "suspend");
    if (!error)
        error = stored_collect(s);
    if (!error && !s->count)
        return image_making_fail(&s->image, -ENODATA, "the program has nothing to be kept");
    if (!error)
        error = image_folder_open(s->image.request->folder, IMAGE_TO_WRITE, &folder, problem);
    if (!error)
        error = stored_write_image(s, folder, problem);
    /* Read the image back from the disk: its pages were dropped from the page cache when it was
     * written. */
    if (!error)
        error = image_verify(folder, &s->image.manifest, image_making_check, &s->image, problem);
    if (!error)
        error = image_folder_hold(folder, s->image.report->image, &hold);
    if (!error) {
        strcpy(stored.path, folder->path);
        strcpy(stored.image, s->image.report->image);
        stored.hold = hold;
        error = stored_release_memory(s);
        if (error)
            stored_forget();
    }
    image_folder_close(folder);
    return error ? image_making_fail(&s->image, error, problem) : 0;
}

void stored_put(const struct image_request *request, struct image_report *ret_report)
{
    struct storing s = {.image = {.request = request, .report = ret_report}};
    *ret_report = (struct image_report){0};
    int error = -ETIMEDOUT;
    if (move_lock_until(request->move.deadline_ns, false)) {
        error = work_begin() ? stored_put_image(&s) : -ESHUTDOWN;
        work_end();
        stored_let_go(&s);
        move_unlock();
    }
    ret_report->result = move_result_of(error);
    if (error)
        (void)image_making_fail(&s.image, error, strerror(-error));
    log_info("suspended to %s: %s, %llu bytes of host memory given back", request->folder,
             error ? ret_report->reason : ret_report->image, (unsigned long long)ret_report->freed);
}

/* ---- bringing back ---- */

/* Roots to fill again: those still only in the image, unless the program released them meanwhile.
 */
struct bringing {
    struct memory **roots; /* held */
    struct host_copy **host_copies;
    struct image_sink *sinks;
    size_t count;
};

static int stored_find_aways(struct move *move, struct bringing *b)
{
    b->roots = calloc(stored.count, sizeof(struct memory *));
    b->host_copies = calloc(stored.count, sizeof(struct host_copy *));
    b->sinks = calloc(stored.count, sizeof(*b->sinks));
    if (!b->roots || !b->host_copies || !b->sinks)
        return -ENOMEM;
    if (gate_close(move->limits.deadline_ns) != 0)
        return -ETIMEDOUT;
    for (size_t i = 0; i < stored.count; i++) {
        const struct away *away = &stored.aways[i];
        struct memory *root = object_weak_get(away->root);
        bool there = root && object_refs(root) != 0 && (root->shadow_copy || root->host_copy);
        if (!there || memory_host_bytes(root) != away->bytes ||
            atomic_load(&root->version) != away->version)
            continue;
        object_hold(root);
        b->roots[b->count] = root;
        b->host_copies[b->count] = host_copy_ref(root->host_copy);
        b->sinks[b->count++] = (struct image_sink){
            .contents = away->contents, .bytes = away->bytes, .zero = !stored.touched};
    }
    gate_open();
    return 0;
}

static void stored_bringing_finish(struct bringing *b)
{
    for (size_t i = 0; i < b->count; i++) {
        host_copy_unref(b->host_copies[i]);
        object_unhold(b->roots[i]);
    }
    free(b->roots);
    free(b->host_copies);
    free(b->sinks);
}

static int stored_check_move(void *data, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return move_check(data);
}

int stored_bring(struct move *move)
{
    char problem[IMAGE_PROBLEM_MAX] = "";
    struct image_folder *folder = NULL;
    struct bringing b = {0};
    if (!stored.count)
        return 0;
    int error = image_folder_open(stored.path, IMAGE_TO_READ, &folder, problem);
    if (!error)
        error = stored_find_aways(move, &b);
    if (!error) {
        const struct image_reading reading = {
            .sinks = b.sinks, .count = b.count, .check = stored_check_move, .data = move};
        stored.touched = true;
        error = image_read(folder, &reading, problem);
    }
    image_folder_close(folder);
    stored_bringing_finish(&b);
    if (!error)
        stored_forget();
    else if (error == -ETIMEDOUT || error == -ECANCELED || error == -ESHUTDOWN)
        return error;
    else
        (void)move_fail(
            move, error,
            "its data is in the image %s, which cannot be read: %.320s; put the image back "
            "and resume again",
            stored.image, *problem ? problem : strerror(-error));
    /* The error came from the disk; driver errors would mislead the caller. */
    return error == 0 ? 0 : -ENODATA;
}
