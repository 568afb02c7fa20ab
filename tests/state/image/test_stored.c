#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/image/image_read.h"
#include "state/image/stored.h"
#include "state/memory/memory.h"
#include "tests/support/engine_rig.h"
#include "tests/support/folder.h"

/* Programs that are suspended to an image, and what becomes of their bytes. */

#define DEVICES "[one] name=one base=1 [two] name=two base=1"
#define LARGE   ((size_t)9 << 20)
#define MIDDLE  ((size_t)300000)
#define SMALL   100
#define WIDTH   640
#define HEIGHT  400
#define MAPPED  ((size_t)1 << 20)
#define ZEROS   ((size_t)4 << 20)

enum { OBJECT_LARGE, OBJECT_MIDDLE, OBJECT_SMALL, OBJECT_MAPPED, OBJECT_ZEROS, BUFFERS };
static const size_t sizes[BUFFERS] = {LARGE, MIDDLE, SMALL, MAPPED, ZEROS};

static struct {
    struct engine_rig rig;
    struct engine_program program;
    cl_mem buffers[BUFFERS], image, user_memory, unwritten;
    unsigned char *map, *user_memory_bytes;
    char above[SCRATCH_MAX], folder[SCRATCH_MAX + 16];
    struct image_report report;
} f;

/* The byte at @at of object @object. */
static unsigned char byte_of(unsigned object, size_t at)
{
    uint64_t state = at * UINT64_C(0x9e3779b97f4a7c15) + object * UINT64_C(0xbf58476d1ce4e5b9);
    state ^= state >> 29;
    state *= UINT64_C(0x94d049bb133111eb);
    return object == OBJECT_ZEROS ? 0 : (unsigned char)(state >> 40);
}

static unsigned char *bytes_of(unsigned object, size_t size)
{
    unsigned char *bytes = malloc(size);
    cr_assert_not_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = byte_of(object, i);
    return bytes;
}

static void write_all(void)
{
    for (unsigned i = 0; i < BUFFERS; i++) {
        unsigned char *bytes = bytes_of(i, sizes[i]);
        f.buffers[i] = engine_buffer(f.program.context, CL_MEM_READ_WRITE, sizes[i], NULL);
        OK(clEnqueueWriteBuffer(f.program.queue, f.buffers[i], CL_TRUE, 0, sizes[i], bytes, 0, NULL,
                                NULL));
        free(bytes);
    }
    unsigned char *bytes = bytes_of(BUFFERS, (size_t)4 * WIDTH * HEIGHT);
    const size_t origin[3] = {0}, region[3] = {WIDTH, HEIGHT, 1};
    OK(clEnqueueWriteImage(f.program.queue, f.image, CL_TRUE, origin, region, 0, 0, bytes, 0, NULL,
                           NULL));
    free(bytes);
}

static void open_program(void)
{
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = WIDTH, .image_height = HEIGHT};
    folder_make(f.above);
    snprintf(f.folder, sizeof(f.folder), "%s/images", f.above);
    engine_rig_open(&f.rig, DEVICES);
    engine_program_open(&f.rig, 0, NULL, &f.program);
    f.image = MADE(clCreateImage, f.program.context, CL_MEM_READ_WRITE, &format, &desc, NULL);
    write_all();
    f.unwritten = engine_buffer(f.program.context, CL_MEM_READ_WRITE, LARGE, NULL);
    f.user_memory_bytes = bytes_of(BUFFERS + 1, MIDDLE);
    f.user_memory = engine_buffer(f.program.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                  MIDDLE, f.user_memory_bytes);
    f.map = MADE(clEnqueueMapBuffer, f.program.queue, f.buffers[OBJECT_MAPPED], CL_TRUE,
                 CL_MAP_READ | CL_MAP_WRITE, 0, MAPPED, 0, NULL, NULL);
    engine_rig_moves(&f.rig, NULL);
}

static void check_read(cl_mem buffer, unsigned object, size_t size)
{
    unsigned char *bytes = malloc(size), *expected = bytes_of(object, size);
    engine_read_there(f.program.queue, buffer, 0, size, bytes);
    cr_assert_arr_eq(bytes, expected, size, "object %u", object);
    free(bytes);
    free(expected);
}

/* Everything is as it was written; what is released is left out. */
static void check_all(void)
{
    const size_t origin[3] = {0}, region[3] = {WIDTH, HEIGHT, 1}, size = (size_t)4 * WIDTH * HEIGHT;
    unsigned char *bytes = malloc(size), *expected = bytes_of(BUFFERS, size);
    for (unsigned i = 0; i < BUFFERS; i++)
        if (f.buffers[i] && i != OBJECT_MAPPED)
            check_read(f.buffers[i], i, sizes[i]);
    OK(clEnqueueReadImage(f.program.queue, f.image, CL_TRUE, origin, region, 0, 0, bytes, 0, NULL,
                          NULL));
    cr_assert_arr_eq(bytes, expected, size, "the image");
    free(bytes);
    free(expected);
    for (size_t i = 0; f.map && i < MAPPED; i++)
        cr_assert_eq(f.map[i], byte_of(OBJECT_MAPPED, i), "what is mapped, at %zu", i);
    check_read(f.user_memory, BUFFERS + 1, MIDDLE);
}

static void close_program(void)
{
    OK(clEnqueueUnmapMemObject(f.program.queue, f.buffers[OBJECT_MAPPED], f.map, 0, NULL, NULL));
    OK(clFinish(f.program.queue));
    for (unsigned i = 0; i < BUFFERS; i++)
        if (f.buffers[i])
            OK(clReleaseMemObject(f.buffers[i]));
    RELEASE(f.image, f.unwritten, f.user_memory);
    engine_program_close(&f.program);
    engine_rig_ends_empty(&f.rig);
    free(f.user_memory_bytes);
}

static enum move_result shadow_copy(void)
{
    const struct image_request request = {.folder = f.folder};
    stored_put(&request, &f.report);
    return f.report.result;
}

static void stores(void)
{
    cr_assert_eq(shadow_copy(), MOVE_DONE, "%s", f.report.reason);
}

/* Pages of a host copy that are there. */
static size_t resident(cl_mem buffer)
{
    const struct memory *root = memory_get(buffer);
    unsigned char pages[4096];
    cr_assert_not_null(root);
    uintptr_t at = ((uintptr_t)root->host_copy->bytes + 4095) & ~(uintptr_t)4095;
    size_t size = ((uintptr_t)root->host_copy->bytes + root->size - at) / 4096, count = 0;
    cr_assert_leq(size, sizeof(pages));
    cr_assert_eq(mincore((void *)at, size * 4096, pages), 0);
    for (size_t i = 0; i < size; i++)
        count += pages[i] & 1;
    return count;
}

/* A resume that is refused says why, and leaves everything. */
static void cannot_resume(const char *because)
{
    struct move_report report;
    cr_assert_eq(engine_rig_move(&f.rig, "two", &report), MOVE_ROLLED_BACK);
    cr_assert(strstr(report.reason, because), "%s", report.reason);
    cr_assert_gt(stored_bytes(), 0);
}

Test(stored, frees_host_memory_until_a_resume_fills_it, .timeout = 120)
{
    open_program();
    cr_assert_gt(resident(f.buffers[OBJECT_LARGE]), 2000);
    stores();
    cr_expect_eq(resident(f.buffers[OBJECT_LARGE]), 0);
    cr_expect_eq(resident(f.buffers[OBJECT_ZEROS]), 0);
    cr_expect_gt(resident(f.buffers[OBJECT_MAPPED]), 250, "it is mapped");
    cr_expect_geq(f.report.freed, LARGE + ZEROS + MIDDLE - 4 * 4096);
    cr_expect_lt(f.report.freed, LARGE + ZEROS + MIDDLE + 4 * WIDTH * HEIGHT + 4 * 4096);
    cr_expect_eq(stored_bytes(), f.report.freed);
    for (size_t i = 0; i < MAPPED; i++)
        cr_assert_eq(f.map[i], byte_of(OBJECT_MAPPED, i));
    engine_rig_moves(&f.rig, "two");
    cr_expect_eq(stored_bytes(), 0);
    check_all();
    close_program();
}

Test(stored, goes_there_again_and_again_and_shares_what_did_not_change, .timeout = 120)
{
    open_program();
    stores();
    uint64_t first = f.report.written;
    cr_expect_eq(shadow_copy(), MOVE_ROLLED_BACK, "it is there already");
    for (unsigned i = 0; i < 3; i++) {
        engine_rig_moves(&f.rig, i % 2 ? "one" : "two");
        check_all();
        engine_rig_moves(&f.rig, NULL);
        stores();
        cr_expect_eq(f.report.written, 0, "%llu of %llu bytes were written again",
                     (unsigned long long)f.report.written, (unsigned long long)first);
    }
    engine_rig_moves(&f.rig, "one");
    check_all();
    close_program();
}

Test(stored, says_what_is_in_the_image, .timeout = 120)
{
    char problem[IMAGE_PROBLEM_MAX];
    struct image_folder *folder;
    struct image_manifest manifest;
    open_program();
    stores();
    cr_assert_eq(image_folder_open(f.folder, IMAGE_TO_READ, &folder, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_manifest(folder, f.report.image, &manifest, problem), 0);
    cr_expect_str_eq(image_manifest_about(&manifest)->reason, "suspend");
    for (unsigned i = 0; i < BUFFERS; i++) {
        const struct image_contents *contents =
            image_manifest_contents(&manifest, (uintptr_t)f.buffers[i]);
        unsigned char *bytes = malloc(sizes[i]), *expected = bytes_of(i, sizes[i]);
        cr_assert_not_null(contents);
        cr_assert_eq(contents->size, sizes[i]);
        const struct image_sink sink = {.contents = contents, .bytes = (char *)bytes};
        const struct image_reading reading = {.sinks = &sink, .count = 1};
        cr_assert_eq(image_read(folder, &reading, problem), 0, "%s", problem);
        cr_expect_arr_eq(bytes, expected, sizes[i], "object %u", i);
        free(bytes);
        free(expected);
    }
    const struct image_contents *unwritten =
        image_manifest_contents(&manifest, (uintptr_t)f.unwritten);
    cr_assert_not_null(unwritten);
    cr_expect_eq(unwritten->written, 0);
    const struct image_contents *user_memory =
        image_manifest_contents(&manifest, (uintptr_t)f.user_memory);
    cr_assert_not_null(user_memory);
    cr_expect_eq(user_memory->size, MIDDLE);
    image_manifest_finish(&manifest);
    image_folder_close(folder);
    engine_rig_moves(&f.rig, "two");
    check_all();
    close_program();
}

Test(stored, cannot_be_pruned_while_it_is_needed, .timeout = 120)
{
    char problem[IMAGE_PROBLEM_MAX];
    struct image_folder *folder;
    open_program();
    stores();
    cr_assert_eq(image_folder_open(f.folder, IMAGE_TO_SWEEP, &folder, problem), 0, "%s", problem);
    cr_expect_eq(image_folder_remove(folder, f.report.image), -EBUSY);
    image_folder_close(folder);
    engine_rig_moves(&f.rig, "two");
    cr_assert_eq(image_folder_open(f.folder, IMAGE_TO_SWEEP, &folder, problem), 0, "%s", problem);
    cr_expect_eq(image_folder_remove(folder, f.report.image), 0);
    image_folder_close(folder);
    check_all();
    close_program();
}

/* ---- failures ---- */

/* Nothing was given back, and the program goes on. */
static void stays_in_memory(void)
{
    cr_expect(f.report.reason[0]);
    cr_expect_eq(f.report.freed, 0);
    cr_expect_eq(stored_bytes(), 0);
    cr_expect_gt(resident(f.buffers[OBJECT_LARGE]), 2000);
    engine_rig_moves(&f.rig, "two");
    check_all();
    close_program();
}

Test(stored, stays_in_memory_where_the_folder_is_anybodys, .timeout = 120)
{
    open_program();
    cr_assert_eq(mkdir(f.folder, 0777), 0);
    cr_assert_eq(chmod(f.folder, 0777), 0);
    cr_expect_eq(shadow_copy(), MOVE_REFUSED);
    cr_expect(strstr(f.report.reason, f.folder), "%s", f.report.reason);
    stays_in_memory();
}

Test(stored, stays_in_memory_where_the_disk_is_full, .timeout = 120)
{
    struct rlimit before, limit;
    open_program();
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1 << 20;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_eq(shadow_copy(), MOVE_ROLLED_BACK);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    stays_in_memory();
}

Test(stored, stays_in_memory_when_it_is_cancelled, .timeout = 120)
{
    static atomic_bool cancel = true;
    open_program();
    const struct image_request request = {.folder = f.folder, .move.cancel = &cancel};
    stored_put(&request, &f.report);
    cr_expect_eq(f.report.result, MOVE_CANCELED);
    stays_in_memory();
}

Test(stored, stays_in_memory_while_the_program_runs, .timeout = 120)
{
    open_program();
    engine_rig_moves(&f.rig, "one");
    cr_expect_eq(shadow_copy(), MOVE_ROLLED_BACK);
    cr_expect(strstr(f.report.reason, "not suspended"), "%s", f.report.reason);
    check_all();
    close_program();
}

/* Of a disk that keeps other bytes than it was given: as the linker's --wrap has it. */
static bool rots;
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct stat status;
    char byte;
    int result = __real_fsync(fd);
    if (rots && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 100000) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int again = open(path, O_RDWR | O_CLOEXEC);
        if (again >= 0 && pread(again, &byte, 1, 90000) == 1) {
            byte ^= 1;
            (void)!pwrite(again, &byte, 1, 90000);
        }
        close(again);
    }
    return result;
}

Test(stored, stays_in_memory_where_the_disk_keeps_other_bytes, .timeout = 120)
{
    open_program();
    rots = true;
    cr_expect_eq(shadow_copy(), MOVE_ROLLED_BACK);
    rots = false;
    cr_expect(strstr(f.report.reason, "digest"), "%s", f.report.reason);
    stays_in_memory();
}

/* The largest chunk's file. */
static void find_chunk(char *ret_path, size_t size)
{
    char chunks[SCRATCH_MAX + 32];
    off_t most = 0;
    snprintf(chunks, sizeof(chunks), "%s/chunks", f.folder);
    DIR *list = opendir(chunks);
    cr_assert_not_null(list);
    for (const struct dirent *entry; (entry = readdir(list));) {
        char path[512];
        struct stat status;
        snprintf(path, sizeof(path), "%s/%s", chunks, entry->d_name);
        if (stat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > most) {
            most = status.st_size;
            snprintf(ret_path, size, "%s", path);
        }
    }
    closedir(list);
    cr_assert_gt(most, 0);
}

Test(stored, stays_in_the_image_while_that_cannot_be_read, .timeout = 120)
{
    char chunk[512], aside[600], moved[SCRATCH_MAX + 16];
    open_program();
    stores();
    find_chunk(chunk, sizeof(chunk));
    snprintf(aside, sizeof(aside), "%s.aside", chunk);
    cr_assert_eq(rename(chunk, aside), 0);
    cannot_resume("it is missing");
    cr_assert_eq(rename(aside, chunk), 0);
    int fd = open(chunk, O_RDWR | O_CLOEXEC);
    char byte;
    cr_assert_eq(pread(fd, &byte, 1, 5000), 1);
    byte ^= 4;
    cr_assert_eq(pwrite(fd, &byte, 1, 5000), 1);
    cannot_resume("digest");
    byte ^= 4;
    cr_assert_eq(pwrite(fd, &byte, 1, 5000), 1);
    close(fd);
    snprintf(moved, sizeof(moved), "%s/moved", f.above);
    cr_assert_eq(rename(f.folder, moved), 0);
    cannot_resume("No such file");
    cr_assert_eq(rename(moved, f.folder), 0);
    engine_rig_moves(&f.rig, "two");
    cr_expect_eq(stored_bytes(), 0);
    check_all();
    close_program();
}

Test(stored, is_forgotten_for_what_the_program_lets_go_of, .timeout = 120)
{
    open_program();
    stores();
    OK(clReleaseMemObject(f.buffers[OBJECT_LARGE]));
    f.buffers[OBJECT_LARGE] = NULL;
    engine_rig_moves(&f.rig, "two");
    check_all();
    close_program();
}
