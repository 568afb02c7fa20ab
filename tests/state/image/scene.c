#include "tests/state/image/scene.h"

#include <sys/stat.h>

#include "tests/support/folder.h"

char above[SCRATCH_MAX], images[SCRATCH_MAX + 16];
char problem[IMAGE_PROBLEM_MAX];
struct rig rig;

static void setup(void)
{
    folder_make(above);
    snprintf(images, sizeof(images), "%s/images", above);
    rig_init(&rig);
}
static void teardown(void)
{
    rig_finish(&rig);
}
TestSuite(image, .init = setup, .fini = teardown, .timeout = 300);

struct image_written write_image(enum image_packing packing)
{
    struct image_written written;
    cr_assert_eq(rig_write(&rig, images, packing, true, &written, problem), 0, "%s", problem);
    return written;
}

void expect_good(const char *name)
{
    cr_expect_eq(rig_compare(&rig, images, name, problem), 0, "%s: %s", name, problem);
}

void file_of(unsigned number, uint64_t chunk, char ret_file[PATH_MAX])
{
    const struct rig_object *object = &rig.objects[number];
    char name[IMAGE_CHUNK_NAME];
    struct image_digest digest = image_chunk_digest(object->bytes + chunk * IMAGE_CHUNK,
                                                    image_chunk_size(object->size, chunk));
    image_chunk_name(&digest, name);
    snprintf(ret_file, PATH_MAX, "%s/chunks/%s", images, name);
}

size_t size_of(const char *file)
{
    struct stat stat_of;
    cr_assert_eq(stat(file, &stat_of), 0, "%s", file);
    return (size_t)stat_of.st_size;
}

struct image_swept remove_image(const char *name)
{
    struct image_folder *folder;
    struct image_swept swept;
    cr_assert_eq(image_folder_open(images, IMAGE_TO_SWEEP, &folder, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_remove(folder, name), 0);
    cr_assert_eq(image_folder_sweep(folder, &swept, problem), 0);
    cr_assert_str_eq(problem, "");
    image_folder_close(folder);
    return swept;
}
