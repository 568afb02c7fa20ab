#include "tests/state/image/rig.h"

#include "tests/support/cases.h"
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

static void fill(const struct rig_object *object, uint64_t chunk, unsigned number)
{
    static const char words[] = "all the same words again and again, and so they get smaller; ";
    unsigned generation = chunk == object->changed ? object->generation : 0;
    uint64_t state = (uint64_t)number * 1000003 + chunk * 7919 + generation * 104729 + 12345;
    size_t size = image_chunk_size(object->size, chunk);
    char *at = object->bytes + chunk * IMAGE_CHUNK;
    for (size_t i = 0; i < size; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        at[i] = object->kind == RIG_NOISE   ? (char)(state >> 56)
                : object->kind == RIG_WORDS ? words[(i + number + generation) % (sizeof(words) - 1)]
                                            : 0;
    }
}

static const void *look(const struct image_source *source, uint64_t at, size_t size, void *room)
{
    const struct rig_object *object = source->data;
    (void)room;
    cr_assert_leq(at + size, object->size);
    return object->bytes + at;
}

static struct rig *counted;
static const void *look_counted(const struct image_source *source, uint64_t at, size_t size,
                                void *room)
{
    counted->looks++;
    return look(source, at, size, room);
}

void rig_init(struct rig *rig)
{
    static const struct rig_object objects[RIG_OBJECTS] = {
        {RIG_NOISE, 2 * IMAGE_CHUNK + 1001, UINT64_MAX},
        {RIG_WORDS, IMAGE_CHUNK + 77, UINT64_MAX},
        {RIG_ZERO, 3 * IMAGE_CHUNK, UINT64_MAX},
        {RIG_ABSENT, IMAGE_CHUNK, UINT64_MAX},
        {RIG_NOISE, 300, UINT64_MAX},
        {RIG_WORDS, 5000, UINT64_MAX},
    };
    *rig = (struct rig){0};
    counted = rig;
    memcpy(rig->objects, objects, sizeof(objects));
    for (unsigned i = 0; i < RIG_OBJECTS; i++) {
        struct rig_object *object = &rig->objects[i];
        object->bytes = malloc(object->size);
        cr_assert_not_null(object->bytes);
        for (uint64_t chunk = 0; chunk < image_chunk_count(object->size); chunk++)
            fill(object, chunk, i);
        for (uint64_t part = 0; part < image_part_total(object->size); part++)
            object->stamps[part] = 1;
        rig->sources[i] = (struct image_source){.id = 100 - i,
                                                .size = object->size,
                                                .written = object->kind != RIG_ABSENT,
                                                .look = look_counted,
                                                .data = object,
                                                .stamps = object->stamps};
    }
}

void rig_finish(struct rig *rig)
{
    for (unsigned i = 0; i < RIG_OBJECTS; i++)
        free(rig->objects[i].bytes);
    image_known_finish(&rig->known);
}

void rig_change(struct rig *rig, unsigned number, uint64_t chunk)
{
    struct rig_object *object = &rig->objects[number];
    object->changed = chunk;
    object->generation++;
    size_t parts = image_part_count(image_chunk_size(object->size, chunk));
    for (size_t part = 0; part < parts; part++)
        object->stamps[chunk * IMAGE_PARTS + part]++;
    fill(object, chunk, number);
}

void rig_change_part(struct rig *rig, unsigned number, uint64_t chunk, unsigned part)
{
    struct rig_object *object = &rig->objects[number];
    size_t size = image_part_size(image_chunk_size(object->size, chunk), part);
    char *at = object->bytes + chunk * IMAGE_CHUNK + part * IMAGE_PART;
    for (size_t i = 0; i < size; i++)
        at[i]++;
    object->stamps[chunk * IMAGE_PARTS + part]++;
}

static void describe(const struct rig *rig, struct image_manifest *manifest)
{
    struct image_about *about = image_manifest_add(manifest, IMAGE_ABOUT)->about;
    about->created_ms = 1234567;
    about->program = strdup("a program");
    about->pid = rig->pid;
    about->host = strdup("host\nwith a line break");
    about->release = strdup("0");
    about->reason = strdup("test");
    for (unsigned i = 0; i < RIG_OBJECTS; i++) {
        struct image_memory *memory = image_manifest_add(manifest, IMAGE_MEMORY)->memory;
        memory->id = memory->root = 100 - i;
        memory->flags = UINT64_C(1) << 63;
    }
    if (rig->lease) {
        struct image_lease *lease = image_manifest_add(manifest, IMAGE_LEASE)->lease;
        lease->id = strdup(rig->lease);
        lease->generation = rig->generation;
    }
}

int rig_write(struct rig *rig, const char *path, enum image_packing packing, bool knows,
              struct image_written *ret_written, char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct image_folder *folder;
    struct image_manifest manifest = {0};
    ret_problem[0] = '\0';
    int error = image_folder_open(path, IMAGE_TO_WRITE, &folder, ret_problem);
    if (error)
        return error;
    describe(rig, &manifest);
    struct image_plan plan = {.manifest = &manifest,
                              .sources = rig->sources,
                              .count = RIG_OBJECTS,
                              .known = knows ? &rig->known : NULL,
                              .packing = packing};
    counted = rig;
    rig->looks = 0;
    error = image_write(folder, &plan, ret_written, ret_problem);
    image_manifest_finish(&manifest);
    image_folder_close(folder);
    return error;
}

static int compare(const struct rig *rig, const struct image_folder *folder,
                   const struct image_manifest *manifest, char *ret_problem)
{
    /* Kept, as new memory of this size costs a page fault for each page, in hundreds of images. */
    static char *rooms[RIG_OBJECTS];
    struct image_sink sinks[RIG_OBJECTS];
    const struct image_reading reading = {.sinks = sinks, .count = RIG_OBJECTS};
    for (unsigned i = 0; i < RIG_OBJECTS; i++) {
        const struct rig_object *object = &rig->objects[i];
        sinks[i].contents = image_manifest_contents(manifest, 100 - i);
        if (!sinks[i].contents || sinks[i].contents->size != object->size ||
            sinks[i].contents->written != (object->kind != RIG_ABSENT))
            return 1;
        if (!rooms[i])
            rooms[i] = malloc(object->size); /* of the same size in each rig */
        sinks[i].bytes = rooms[i];
        sinks[i].zero = false;
        memset(sinks[i].bytes, 0xa5, object->size);
    }
    int error = image_read(folder, &reading, ret_problem);
    for (unsigned i = 0; i < RIG_OBJECTS; i++)
        if (!error && rig->objects[i].kind != RIG_ABSENT &&
            memcmp(sinks[i].bytes, rig->objects[i].bytes, rig->objects[i].size) != 0)
            error = 1;
    return error;
}

int rig_compare(const struct rig *rig, const char *path, const char *name,
                char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct image_folder *folder;
    struct image_manifest manifest;
    ret_problem[0] = '\0';
    int error = image_folder_open(path, IMAGE_TO_READ, &folder, ret_problem);
    if (error)
        return error;
    error = image_folder_manifest(folder, name, &manifest, ret_problem);
    if (!error) {
        error = compare(rig, folder, &manifest, ret_problem);
        image_manifest_finish(&manifest);
    }
    image_folder_close(folder);
    return error;
}

struct file_names rig_whole(const char *path)
{
    char problem[IMAGE_PROBLEM_MAX];
    struct image_folder *folder;
    struct file_names names;
    cr_assert_eq(image_folder_open(path, IMAGE_TO_READ, &folder, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_names(folder, &names), 0);
    size_t count = 0;
    for (size_t i = 0; i < names.count; i++)
        if (image_folder_is_whole(folder, names.names[i]))
            names.names[count++] = names.names[i];
        else
            free(names.names[i]);
    names.count = count;
    image_folder_close(folder);
    return names;
}

/* Entries of a folder that begin with no dot, and, if @whole, have no manifest. */
static unsigned entries(const char *path, bool images)
{
    DIR *list = opendir(path);
    unsigned count = 0;
    const struct dirent *entry;
    while (list && (entry = readdir(list))) {
        char file[sizeof(entry->d_name) + sizeof("/manifest")];
        struct stat stat_of;
        snprintf(file, sizeof(file), "%s/manifest", entry->d_name);
        if (entry->d_name[0] != '.' &&
            (!images || (entry->d_name[0] == '2' && fstatat(dirfd(list), file, &stat_of, 0) != 0)))
            count++;
    }
    if (list)
        closedir(list);
    return count;
}

unsigned rig_chunks(const char *path)
{
    char chunks[4096];
    snprintf(chunks, sizeof(chunks), "%s/chunks", path);
    return entries(chunks, false);
}

unsigned rig_unfinished(const char *path)
{
    return entries(path, true);
}
