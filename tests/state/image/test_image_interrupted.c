#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/state/image/faults.h"
#include "tests/state/image/scene.h"
#include "tests/support/every.h"

/* Images whose writing is interrupted, fails or is given up: they are whole, or not there. */

/* What a child makes of an image that is interrupted at call @at. */
static int write_with_fault(enum fault fault, unsigned at, int error)
{
    pid_t child = fork();
    if (child == 0) {
        struct image_written written;
        faults_arm(fault, at, error);
        int failed = rig_write(&rig, images, IMAGE_PACKS, true, &written, problem);
        bool reached = faults_count() >= at;
        faults_arm(FAULT_NONE, 0, 0);
        /* Nobody knows better than the writer whether it is there. */
        if (!failed && rig_compare(&rig, images, written.name, problem) != 0)
            _exit(3);
        if (failed && !problem[0])
            _exit(4);
        _exit(failed ? 1 : reached ? 2 : 0);
    }
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status), "at %u: status %x", at, status);
    return WEXITSTATUS(status);
}

/* The first image is there, and any other is whole. */
static void expect_whole(const struct rig *before, const char *first, unsigned at)
{
    struct file_names names = rig_whole(images);
    cr_assert_geq(names.count, 1, "at %u", at);
    cr_assert_str_eq(names.names[0], first, "at %u", at);
    cr_assert_eq(rig_compare(before, images, first, problem), 0, "at %u: %s", at, problem);
    for (size_t i = 1; i < names.count; i++)
        cr_assert_eq(rig_compare(&rig, images, names.names[i], problem), 0, "at %u, %s: %s", at,
                     names.names[i], problem);
    file_names_finish(&names);
}

/* All but the first go, so that each try begins with the same. */
static void remove_others(void)
{
    struct image_folder *folder;
    struct image_swept swept;
    struct file_names names;
    cr_assert_eq(image_folder_open(images, IMAGE_TO_SWEEP, &folder, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_names(folder, &names), 0);
    for (size_t i = 1; i < names.count; i++)
        if (image_folder_is_whole(folder, names.names[i]))
            cr_assert_eq(image_folder_remove(folder, names.names[i]), 0);
    file_names_finish(&names);
    cr_assert_eq(image_folder_sweep(folder, &swept, problem), 0);
    cr_assert_str_eq(problem, "");
    image_folder_close(folder);
    cr_assert_eq(rig_unfinished(images), 0);
    cr_assert_eq(rig_chunks(images), CHUNKS);
}

/* Calls of a second image, which shares some chunks with the first: each is tried with one of the
 * faults. */
static void interrupt(enum fault fault, int error, bool ends_by_itself)
{
    struct rig before;
    rig_init(&before);
    struct image_written first = write_image(IMAGE_PACKS);
    rig_change(&rig, 0, 1);
    rig_change(&rig, 1, 0);
    rig_change_part(&rig, 0, 0, 7);
    unsigned at = 1 + (unsigned)fault % every(3);
    for (int status = 1; status != 0; at += every(3)) {
        status = write_with_fault(fault, at, error);
        cr_assert(status != 3, "at %u: an image that was said to be written is none", at);
        cr_assert(status != 4, "at %u: a failure has no reason", at);
        cr_assert(fault != FAULT_KILL || status == FAULT_KILLED || status == 0);
        expect_whole(&before, first.name, at);
        if (!ends_by_itself) {
            /* The next one sweeps what is left. */
            struct image_written next = write_image(IMAGE_PACKS);
            expect_good(next.name);
            cr_assert_eq(rig_unfinished(images), 0, "at %u", at);
        }
        remove_others();
    }
    cr_expect_gt(at, 40, "so few calls: %u", at);
    rig_finish(&before);
}

TestCall(image, is_absent_or_whole_when_the_machine_ends_at_any_call,
         interrupt(FAULT_KILL, 0, false));
TestCall(image, is_absent_or_whole_when_any_call_fails, interrupt(FAULT_ERROR, EIO, false));
TestCall(image, leaves_nothing_when_the_disk_gets_full_at_any_call,
         interrupt(FAULT_FULL, ENOSPC, true));

Test(image, leaves_nothing_of_itself_on_a_full_disk)
{
    struct image_written written;
    write_image(IMAGE_PACKS);
    rig_change(&rig, 0, 0);
    rig_change(&rig, 0, 1);
    faults_arm(FAULT_FULL, 20, ENOSPC);
    int error = rig_write(&rig, images, IMAGE_PACKS, true, &written, problem);
    faults_arm(FAULT_NONE, 0, 0);
    cr_expect_eq(error, -ENOSPC);
    cr_expect(strstr(problem, "No space left"), "%s", problem);
    cr_expect_eq(rig_unfinished(images), 0);
    cr_expect_eq(rig_chunks(images), CHUNKS);
}

Test(image, is_refused_where_files_may_not_become_as_long)
{
    struct rlimit limit, before;
    struct image_written written;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1 << 20;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_eq(rig_write(&rig, images, IMAGE_PACKS, true, &written, problem), -EFBIG);
    cr_expect(strstr(problem, "ulimit"), "%s", problem);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    cr_expect_eq(rig_chunks(images), 0);
    expect_good(write_image(IMAGE_PACKS).name);
}

static int give_up(void *data, uint64_t done, uint64_t total)
{
    _Atomic unsigned *left = data;
    cr_assert_leq(done, total);
    return (*left)-- == 0 ? -ECANCELED : 0;
}

Test(image, is_not_there_when_it_was_given_up)
{
    struct image_manifest manifest = {0};
    struct image_folder *folder;
    struct image_written written;
    _Atomic unsigned left = 3;
    cr_assert_eq(image_folder_open(images, IMAGE_TO_WRITE, &folder, problem), 0, "%s", problem);
    cr_assert_not_null(image_manifest_add(&manifest, IMAGE_ABOUT));
    const struct image_plan plan = {.manifest = &manifest,
                                    .sources = rig.sources,
                                    .count = RIG_OBJECTS,
                                    .check = give_up,
                                    .data = &left};
    cr_expect_eq(image_write(folder, &plan, &written, problem), -ECANCELED);
    image_manifest_finish(&manifest);
    image_folder_close(folder);
    cr_expect_eq(rig_unfinished(images), 0);
    cr_expect_eq(rig_chunks(images), 0);
}
