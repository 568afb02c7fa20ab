#include "state/image/restore.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/bytes/size.h"
#include "state/base/memory/pages.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/gate.h"
#include "state/base/threads/long_lock.h"
#include "state/base/threads/thread.h"
#include "state/image/image_graph.h"
#include "state/image/image_read.h"
#include "state/image/lease_renewer.h"
#include "state/memory/compare.h"
#include "state/memory/replica.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Written once; the last three members are guarded by lock. */
static struct {
    int error; /* -ENOENT: the program was started without an image */
    char problem[IMAGE_PROBLEM_MAX];
    char path[PATH_MAX], image[IMAGE_NAME_MAX];
    struct image_manifest manifest;
    const struct image_progress *progress;
    struct owned hold;
    bool *given; /* of each record: a name whose bytes an object has */
    size_t left; /* names that are not given */
} image = {.error = -ENOENT, .hold = {.fd = -1}};
/* Held while bytes are read. */
static struct long_lock lock = LONG_LOCK_INITIALIZER;

/* A child of a fork was not restored. */
static void restore_in_child(void)
{
    owned_close(&image.hold);
    image.error = -ENOENT;
    long_lock_init(&lock);
}

FORK_PART = {.rank = FORK_TABLE, .in_child = restore_in_child};

static int restore_refuse(int error, const char *why)
{
    (void)!snprintf(image.problem, sizeof(image.problem), "%.500s/%s: %.400s", image.path,
                    image.image, why);
    return error;
}

/* Split FOLDER/NAME. */
static int restore_split_path(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (path[0] != '/' || length == 0 || length >= sizeof(image.path) ||
        !image_name_is_valid(slash + 1)) {
        (void)!snprintf(image.problem, sizeof(image.problem), "%.500s: no image has such a path",
                        path);
        return -EBADMSG;
    }
    memcpy(image.path, path, length);
    image.path[length] = '\0';
    (void)!snprintf(image.image, sizeof(image.image), "%s", slash + 1);
    return 0;
}

static int restore_check(void)
{
    const struct image_about *about = image_manifest_about(&image.manifest);
    const struct image_record *progress = image_manifest_find(&image.manifest, IMAGE_PROGRESS);
    char why[IMAGE_PROBLEM_MAX];
    if (strcmp(about->program, graph_program_name()) != 0) {
        (void)!snprintf(why, sizeof(why), "it is of the program %.200s", about->program);
        return restore_refuse(-ESTALE, why);
    }
    if (!progress)
        return restore_refuse(-ESTALE, "it has no progress: the program had no save callback");
    image.progress = progress->progress;
    return 0;
}

/* The process that started the program holds the lease: take it over. */
static int restore_take_lease(const char *text)
{
    struct lease from, lease;
    uint64_t generation;
    if (!text || !*text)
        return 0;
    if (strlen(text) < LEASE_ID_MAX + 1 || text[LEASE_ID_MAX - 1] != '.')
        return restore_refuse(-EBADMSG, "what it is started by is no right");
    char id[LEASE_ID_MAX];
    memcpy(id, text, LEASE_ID_MAX - 1);
    id[LEASE_ID_MAX - 1] = '\0';
    bool numbered = number_parse(text + LEASE_ID_MAX, UINT64_MAX, &generation);
    int error = numbered ? lease_find(image.path, id, &from) : -EBADMSG;
    if (!error && from.generation != generation)
        error = -EEXIST;
    if (!error)
        error = lease_take(&from, LEASE_RUNNING, &lease);
    if (error == -EEXIST)
        return restore_refuse(-ESTALE, "somebody else has recovered the program");
    if (!error)
        error = lease_renewer_adopt(&lease);
    return error ? restore_refuse(error, strerror(-error)) : 0;
}

/* Once all named objects have their bytes, the image is no longer needed and the lease is the
 * program's own. */
static void restore_settle(void)
{
    if (image.left != 0)
        return;
    owned_close(&image.hold);
    lease_renewer_settle();
}

static int restore_read_image(const char *path)
{
    struct image_folder *folder = NULL;
    int error = fork_watch();
    if (!error)
        error = restore_split_path(path);
    if (!error)
        error = image_folder_open(image.path, IMAGE_TO_READ, &folder, image.problem);
    if (!error)
        error = image_folder_hold(folder, image.image, &image.hold);
    if (!error || error == -ENOENT)
        error = folder ? image_folder_manifest(folder, image.image, &image.manifest, image.problem)
                       : error;
    if (!error)
        error = restore_check();
    if (!error)
        error = restore_take_lease(secure_getenv(RESTORE_ENV_LEASE));
    image_folder_close(folder);
    if (!error && !(image.given = calloc(image.manifest.count, sizeof(*image.given))))
        error = -ENOMEM;
    for (size_t i = 0; !error && i < image.manifest.count; i++)
        image.left += image.manifest.records[i].kind == IMAGE_NAME;
    if (error)
        owned_close(&image.hold);
    else
        restore_settle();
    if (error && !image.problem[0])
        restore_refuse(error, strerror(-error));
    return !error || error == -ENOMEM || error == -ESTALE ? error : -EBADMSG;
}

static void restore_open_once(void)
{
    char *path = secure_getenv(RESTORE_ENV);
    if (!path || !*path)
        return;
    int before = cancel_hold();
    image.error = restore_read_image(path);
    cancel_allow(before);
    /* Cleared in place: a thread that reads the environment meanwhile sees the old or the new text.
     */
    *path = '\0';
    if ((path = secure_getenv(RESTORE_ENV_LEASE)))
        *path = '\0';
}

int restore_progress(struct restored *ret_restored, char ret_problem[IMAGE_PROBLEM_MAX])
{
    pthread_once(&once, restore_open_once);
    if (image.error) {
        memcpy(ret_problem, image.problem, sizeof(image.problem));
        return image.error;
    }
    *ret_restored = (struct restored){image.progress->bytes.bytes, image.progress->bytes.size,
                                      image_manifest_about(&image.manifest)->created_ms};
    return 0;
}

/* ---- contents ---- */

/* The records of a named object. */
struct found {
    size_t name; /* the index of its record */
    const struct image_memory *memory;
    const struct image_contents *contents;
};

static int restore_find_named(const char *name, struct found *ret_found)
{
    const struct image_manifest *manifest = &image.manifest;
    struct found found = {.name = manifest->count};
    for (size_t i = 0; i < manifest->count && found.name == manifest->count; i++)
        if (manifest->records[i].kind == IMAGE_NAME &&
            strcmp(manifest->records[i].name->name, name) == 0)
            found.name = i;
    if (found.name == manifest->count)
        return -ENOENT;
    uint64_t id = manifest->records[found.name].name->id;
    for (size_t i = 0; i < manifest->count && !found.memory; i++)
        if (manifest->records[i].kind == IMAGE_MEMORY && manifest->records[i].memory->id == id)
            found.memory = manifest->records[i].memory;
    found.contents = image_manifest_contents(manifest, id);
    if (!found.memory || !found.contents || found.contents->size != found.memory->size)
        return -EBADMSG;
    *ret_found = found;
    return 0;
}

/* What differs between the object and the image, or NULL. */
static const char *restore_compare(const struct memory *root, const struct image_memory *other)
{
    const struct image_shape *shape = root->image;
    if (root->type != other->type)
        return "it is of another type";
    if (shape && (shape->format.image_channel_order != other->channel_order ||
                  shape->format.image_channel_data_type != other->channel_type))
        return "it has another format";
    if (shape &&
        (shape->desc.image_width != other->width || shape->desc.image_height != other->height ||
         shape->desc.image_depth != other->depth ||
         shape->desc.image_array_size != other->array_size ||
         shape->row_pitch != other->row_pitch || shape->slice_pitch != other->slice_pitch))
        return "it has another shape";
    return root->size == other->size ? NULL : "it has another size";
}

/* Where the bytes are read to: the object's host copy, or memory of ours. */
struct room {
    struct host_copy *host_copy; /* held; or NULL */
    char *bytes;
    size_t size;
};

/* Only an object that was never written is read into in place: a failure could spoil others. */
static int restore_room_make(struct memory *root, struct room *ret_room)
{
    bool fresh = atomic_load(&root->version) == 0 && !atomic_load(&root->used) &&
                 !memory_is_user_memory(root);
    if (fresh && memory_host_copy(root, 0) == 0) {
        struct host_copy *host_copy = host_copy_ref(root->host_copy);
        *ret_room = (struct room){host_copy, host_copy->bytes, root->size};
        return 0;
    }
    char *bytes = pages_take(root->size, PAGES_ANY);
    if (!bytes)
        return -ENOMEM;
    *ret_room = (struct room){NULL, bytes, root->size};
    return 0;
}

static void restore_room_finish(const struct room *room)
{
    if (room->host_copy)
        host_copy_unref(room->host_copy);
    else
        pages_give(room->bytes, room->size);
}

/* Give the object the bytes that were read. */
static int restore_commit(struct memory *root, const struct room *room)
{
    int error = gate_close(0);
    if (error)
        return error;
    bool used = atomic_load(&root->used) || atomic_load(&root->map_count) != 0;
    error = used ? -EBUSY : memory_host_room(root, 0);
    if (!error) {
        char *bytes = memory_host_bytes(root);
        if (bytes != room->bytes)
            memcpy(bytes, room->bytes, root->size);
        compare_forget_at(root, RESIDENCE_HOST);
        replica_written(root, RESIDENCE_HOST, replica_whole(root));
    }
    gate_open();
    return error;
}

static int restore_fill_from(struct memory *root, const struct found *found, char *ret_problem)
{
    struct image_folder *folder = NULL;
    struct room room;
    if (!found->contents->written)
        return 0;
    int error = image_folder_open(image.path, IMAGE_TO_READ, &folder, ret_problem);
    if (error)
        return error;
    error = restore_room_make(root, &room);
    if (!error) {
        const struct image_sink sink = {.contents = found->contents, .bytes = room.bytes};
        const struct image_reading reading = {.sinks = &sink, .count = 1};
        error = image_read(folder, &reading, ret_problem);
        if (!error)
            error = restore_commit(root, &room);
        restore_room_finish(&room);
    }
    image_folder_close(folder);
    return error;
}

static int restore_fill_once(struct memory *root, const char *name, bool *filled, char *ret_problem)
{
    struct found found = {0};
    const char *why = "the image has nothing of that name";
    int error = restore_find_named(name, &found);
    if (error == -EBADMSG)
        why = "the image is not whole";
    if (error || image.given[found.name])
        goto out;
    why = restore_compare(root, found.memory);
    error = why ? -ESTALE : 0;
    if (!error) {
        why = NULL;
        error = restore_fill_from(root, &found, ret_problem);
    }
    if (error && !why && !*ret_problem)
        why = error == -EBUSY ? "a command has named it" : strerror(-error);
    if (!error) {
        image.given[found.name] = *filled = true;
        image.left--;
        restore_settle();
    }
out:
    if (error && why)
        (void)!snprintf(ret_problem, IMAGE_PROBLEM_MAX, "\"%s\": %s", name, why);
    return error;
}

int restore_fill(struct memory *root, const char *name, bool *ret_filled,
                 char ret_problem[IMAGE_PROBLEM_MAX])
{
    bool filled = false;
    pthread_once(&once, restore_open_once);
    int error = image.error == -ENOENT ? 0 : image.error;
    *ret_problem = '\0';
    if (error) {
        memcpy(ret_problem, image.problem, sizeof(image.problem));
        return error;
    }
    if (image.error == 0) {
        int before = cancel_hold();
        (void)long_lock_take(&lock, 0);
        error = restore_fill_once(root, name, &filled, ret_problem);
        long_lock_release(&lock);
        cancel_allow(before);
    }
    if (error && error != -ENOENT && error != -ESTALE && error != -EBUSY && error != -ENOMEM)
        error = -EBADMSG;
    if (!error)
        *ret_filled = filled;
    return error;
}
