#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "state/image/restore.h"
#include "tests/interpose/aware/save_program.h"

/* A new process that goes on from an image of another. */

/* Objects of each kind, as two processes make them. */
struct objects {
    cl_mem fresh, begun, user_memory, image, none;
    char begun_bytes[300], user_memory_bytes[4096];
};

static cl_mem make_image2d(size_t width)
{
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = width, .image_height = 7};
    return MADE(clCreateImage, f.program.context, CL_MEM_READ_WRITE, &format, &desc, NULL);
}

static void make_objects(struct objects *o, int byte)
{
    memset(o->begun_bytes, byte, sizeof(o->begun_bytes));
    memset(o->user_memory_bytes, byte + 1, sizeof(o->user_memory_bytes));
    o->fresh = engine_buffer(f.program.context, CL_MEM_READ_WRITE, BYTES, NULL);
    o->begun = engine_buffer(f.program.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                             sizeof(o->begun_bytes), o->begun_bytes);
    o->user_memory = engine_buffer(f.program.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                   sizeof(o->user_memory_bytes), o->user_memory_bytes);
    o->image = make_image2d(5);
    o->none = engine_buffer(f.program.context, CL_MEM_READ_WRITE, 64, NULL);
}

static void release_objects(struct objects *o)
{
    RELEASE(o->fresh, o->begun, o->user_memory, o->image, o->none);
}

static void is_filled(cl_mem memory, const char *name)
{
    int filled = 0, error = reseat_name(memory, name, &filled);
    cr_assert_eq(error, RESEAT_OK, "%s: %s", name, reseat_error_text(error));
    cr_assert_eq(filled, 1, "%s", name);
}

static void all_are(cl_mem memory, size_t size, int byte, const char *name)
{
    char *bytes = malloc(size);
    engine_read_there(f.program.queue, memory, 0, size, bytes);
    for (size_t i = 0; i < size; i++)
        cr_assert_eq(bytes[i], (char)byte, "%s: byte %zu is %d, not %d", name, i, bytes[i], byte);
    free(bytes);
}

static const size_t origin[3] = {0, 0, 0}, region[3] = {5, 7, 1};

static void name_all(const struct objects *o)
{
    cr_assert_eq(reseat_name(o->fresh, "fresh", NULL), RESEAT_OK);
    cr_assert_eq(reseat_name(o->begun, "begun", NULL), RESEAT_OK);
    cr_assert_eq(reseat_name(o->user_memory, "lent", NULL), RESEAT_OK);
    cr_assert_eq(reseat_name(o->image, "image", NULL), RESEAT_OK);
    cr_assert_eq(reseat_name(o->none, "none", NULL), RESEAT_OK);
}

static void make_image_of_all(void)
{
    static char pixels[7 * 5 * 4];
    const char forty = 40;
    struct objects o;
    open_program();
    make_objects(&o, 10);
    name_all(&o);
    memset(pixels, 30, sizeof(pixels));
    OK(clEnqueueWriteImage(f.program.queue, o.image, CL_TRUE, origin, region, 0, 0, pixels, 0, NULL,
                           NULL));
    OK(clEnqueueFillBuffer(f.program.queue, o.fresh, &forty, 1, 0, BYTES, 0, NULL, NULL));
    f.steps = 77;
    take_part(on_save, 0);
    makes();
}

static void make_image_without_progress(void)
{
    open_program();
    makes();
}

static void make_image_of_another(void)
{
    static char other[] = "other";
    program_invocation_short_name = other;
    make_image_of_all();
}

/* Another process makes an image, before this one begins. */
static void have_image(void (*make)(void))
{
    int status, ends[2];
    folder_make(f.above);
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        make();
        bool told = write(ends[1], f.report.image, IMAGE_NAME_MAX) == IMAGE_NAME_MAX;
        _exit(told ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    cr_assert_eq(read(ends[0], f.report.image, IMAGE_NAME_MAX), IMAGE_NAME_MAX);
    close(ends[0]);
    close(ends[1]);
    open_program();
}

static void begin_from(const char *image)
{
    char path[sizeof(f.folder) + IMAGE_NAME_MAX + 1];
    snprintf(path, sizeof(path), "%s/%s", f.folder, image);
    cr_assert_eq(setenv(RESTORE_ENV, path, 1), 0);
}

static int restored(void)
{
    struct reseat_restored told = {.size = sizeof(told)};
    int error = reseat_restored(&told);
    snprintf(problem, sizeof(problem), "%s", told.problem);
    if (error == RESEAT_OK) {
        cr_assert_eq(told.count, sizeof(f.steps));
        memcpy(&f.steps, told.bytes, sizeof(f.steps));
        cr_assert_gt(told.saved_ms, 0);
    }
    return error;
}

Test(aware_save, a_new_process_gets_the_progress_and_the_bytes)
{
    struct objects o;
    have_image(make_image_of_all);
    f.steps = 0;
    begin_from(f.report.image);
    cr_assert_eq(restored(), RESEAT_OK, "%s", problem);
    cr_assert_eq(f.steps, 77);
    cr_assert_str_empty(getenv(RESTORE_ENV), "its children begin at their beginnings");
    make_objects(&o, 90);
    is_filled(o.fresh, "fresh");
    is_filled(o.begun, "begun");
    is_filled(o.user_memory, "lent");
    is_filled(o.image, "image");
    is_filled(o.none, "none");
    for (size_t i = 0; i < sizeof(o.user_memory_bytes); i++)
        cr_assert_eq(o.user_memory_bytes[i], 91, "the program's memory is written by its commands");
    all_are(o.fresh, BYTES, 40, "fresh");
    all_are(o.begun, sizeof(o.begun_bytes), 10, "begun");
    all_are(o.user_memory, sizeof(o.user_memory_bytes), 11, "lent");
    char pixels[7 * 5 * 4];
    OK(clEnqueueReadImage(f.program.queue, o.image, CL_TRUE, origin, region, 0, 0, pixels, 0, NULL,
                          NULL));
    for (size_t i = 0; i < sizeof(pixels); i++)
        cr_assert_eq(pixels[i], 30);
    /* Once: what is made again has what the program gives it. */
    OK(clReleaseMemObject(o.begun));
    o.begun = engine_buffer(f.program.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                            sizeof(o.begun_bytes), o.begun_bytes);
    int filled = 1;
    cr_assert_eq(reseat_name(o.begun, "begun", &filled), RESEAT_OK);
    cr_assert_eq(filled, 0);
    all_are(o.begun, sizeof(o.begun_bytes), 90, "begun");
    engine_rig_moves(&f.rig, "two");
    all_are(o.fresh, BYTES, 40, "fresh");
    release_objects(&o);
}

Test(aware_save, what_does_not_fit_is_told_and_nothing_is_lost)
{
    struct objects o;
    have_image(make_image_of_all);
    begin_from(f.report.image);
    make_objects(&o, 90);
    cr_assert_eq(reseat_name(o.begun, "image", NULL), RESEAT_DIFFERENT, "another type");
    cr_assert_eq(reseat_name(o.begun, "lent", NULL), RESEAT_DIFFERENT, "another size");
    cr_assert_eq(reseat_name(o.begun, "other", NULL), RESEAT_MISSING);
    OK(clReleaseMemObject(o.image));
    o.image = make_image2d(6);
    cr_assert_eq(reseat_name(o.image, "image", NULL), RESEAT_DIFFERENT, "another shape");
    all_are(o.begun, sizeof(o.begun_bytes), 90, "begun");
    cr_assert_eq(reseat_name(o.begun, "begun", NULL), RESEAT_BUSY, "it was used");
    all_are(o.begun, sizeof(o.begun_bytes), 90, "begun");
    OK(clReleaseMemObject(o.begun));
    o.begun = engine_buffer(f.program.context, CL_MEM_READ_WRITE, sizeof(o.begun_bytes), NULL);
    is_filled(o.begun, "begun");
    all_are(o.begun, sizeof(o.begun_bytes), 10, "begun");
    release_objects(&o);
}

/* Damage a file of the image's folder, at a byte or at its end. */
static void damage(const char *path, long at)
{
    FILE *file = fopen(path, "r+e");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    cr_assert_eq(fseek(file, at, SEEK_SET), 0);
    fputc(byte ^ 1, file);
    fclose(file);
}

Test(aware_save, damaged_contents_are_not_given)
{
    struct objects o;
    char path[PATH_MAX], name[IMAGE_CHUNK_NAME] = "";
    have_image(make_image_of_all);
    open_image();
    for (size_t i = 0; i < manifest.count; i++) {
        const struct image_contents *contents = manifest.records[i].contents;
        if (manifest.records[i].kind != IMAGE_CONTENTS ||
            contents->size != sizeof(o.user_memory_bytes))
            continue;
        const struct image_digest digest = image_contents_digest(contents, 0);
        image_chunk_name(&digest, name);
    }
    close_image();
    snprintf(path, sizeof(path), "%s/chunks/%s", f.folder, name);
    damage(path, IMAGE_CHUNK_HEADER + 1);
    begin_from(f.report.image);
    cr_assert_eq(restored(), RESEAT_OK, "%s", problem);
    make_objects(&o, 90);
    cr_assert_eq(reseat_name(o.user_memory, "lent", NULL), RESEAT_DAMAGED);
    all_are(o.user_memory, sizeof(o.user_memory_bytes), 91, "lent");
    is_filled(o.fresh, "fresh");
    release_objects(&o);
}

Test(aware_save, a_damaged_manifest_is_not_read)
{
    struct objects o;
    char path[PATH_MAX];
    have_image(make_image_of_all);
    snprintf(path, sizeof(path), "%s/%s/%s", f.folder, f.report.image, IMAGE_MANIFEST);
    damage(path, 100);
    begin_from(f.report.image);
    cr_assert_eq(restored(), RESEAT_DAMAGED);
    cr_assert(strstr(problem, "it is damaged"), "%s", problem);
    make_objects(&o, 90);
    cr_assert_eq(reseat_name(o.fresh, "fresh", NULL), RESEAT_DAMAGED);
    release_objects(&o);
}

Test(aware_save, another_program_s_image_is_not_read)
{
    have_image(make_image_of_another);
    begin_from(f.report.image);
    cr_assert_eq(restored(), RESEAT_DIFFERENT);
    cr_assert(strstr(problem, "it is of the program other"), "%s", problem);
}

Test(aware_save, an_image_without_progress_is_not_gone_on_from)
{
    have_image(make_image_without_progress);
    begin_from(f.report.image);
    cr_assert_eq(restored(), RESEAT_DIFFERENT);
    cr_assert(strstr(problem, "it has no progress"), "%s", problem);
}

Test(aware_save, a_folder_that_others_can_enter_is_not_read)
{
    have_image(make_image_of_all);
    cr_assert_eq(chmod(f.folder, 0755), 0);
    begin_from(f.report.image);
    cr_assert_eq(restored(), RESEAT_DAMAGED);
    cr_assert(strstr(problem, "only you can enter"), "%s", problem);
}

Test(aware_save, without_an_image_a_program_begins_at_its_beginning)
{
    struct reseat_restored told = {.size = offsetof(struct reseat_restored, problem) - 1};
    open_program();
    cr_assert_eq(reseat_restored(&told), RESEAT_INVALID);
    cr_assert_eq(reseat_restored(NULL), RESEAT_INVALID);
    cr_assert_eq(restored(), RESEAT_NO_IMAGE);
    cr_assert_str_empty(problem);
}

Test(aware_save, a_path_that_is_no_image_s_is_not_read)
{
    open_program();
    begin_from("../../etc/passwd");
    cr_assert_eq(restored(), RESEAT_DAMAGED);
    cr_assert(strstr(problem, "no image has such a path"), "%s", problem);
}

Test(aware_save, the_child_of_a_fork_is_not_restored)
{
    int status;
    have_image(make_image_of_all);
    begin_from(f.report.image);
    cr_assert_eq(restored(), RESEAT_OK);
    pid_t child = fork();
    if (child == 0)
        _exit(restored() == RESEAT_NO_IMAGE ? 0 : 1);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
}
