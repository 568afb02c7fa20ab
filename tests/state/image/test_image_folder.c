#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/image/image_folder.h"
#include "tests/state/image/scene.h"

/* The folder of images: whose it may be, what it is called in it, and what is removed from it when.
 */

Test(image, is_refused_in_a_folder_that_others_can_enter)
{
    struct image_folder *folder;
    struct image_written written = write_image(IMAGE_PACKS);
    cr_assert_eq(chmod(images, 0755), 0);
    for (int use = IMAGE_TO_READ; use <= IMAGE_TO_SWEEP; use++) {
        cr_expect_eq(image_folder_open(images, (enum image_use)use, &folder, problem), -EPERM);
        cr_expect(strstr(problem, images), "%s", problem);
    }
    cr_assert_eq(chmod(images, 0700), 0);
    cr_assert_eq(chmod(above, 0777), 0);
    for (int use = IMAGE_TO_READ; use <= IMAGE_TO_SWEEP; use++)
        cr_expect_eq(image_folder_open(images, (enum image_use)use, &folder, problem), -EPERM);
    cr_assert_eq(chmod(above, 0700), 0);
    expect_good(written.name);
    char none[PATH_MAX];
    snprintf(none, sizeof(none), "%s/none", above);
    cr_expect_eq(image_folder_open(none, IMAGE_TO_READ, &folder, problem), -ENOENT);
    cr_assert_eq(mkdir(none, 0700), 0);
    cr_expect_eq(image_folder_open(none, IMAGE_TO_READ, &folder, problem), -ENOENT);
    cr_expect(strstr(problem, "no images"), "%s", problem);
}

Test(image, is_not_put_among_other_files)
{
    struct image_folder *folder;
    char other[PATH_MAX], file[PATH_MAX + 8];
    snprintf(other, sizeof(other), "%s/other", above);
    snprintf(file, sizeof(file), "%s/thesis", other);
    cr_assert_eq(mkdir(other, 0700), 0);
    cr_assert_eq(mkdir(file, 0700), 0);
    cr_expect_eq(image_folder_open(other, IMAGE_TO_WRITE, &folder, problem), -ENOTEMPTY);
    cr_expect(strstr(problem, "holds other files"), "%s", problem);
    cr_assert_eq(rmdir(file), 0);
    cr_assert_eq(image_folder_open(other, IMAGE_TO_WRITE, &folder, problem), 0, "%s", problem);
    image_folder_close(folder);
    /* What comes there later does not keep images from it. */
    cr_assert_eq(mkdir(file, 0700), 0);
    cr_assert_eq(image_folder_open(other, IMAGE_TO_WRITE, &folder, problem), 0, "%s", problem);
    image_folder_close(folder);
}

/* The image @name cannot be read: it is listed, and all chunks are kept, as it may need them. */
static void expect_kept(const char *name)
{
    struct image_folder *folder;
    struct image_swept swept = {0};
    cr_expect_eq(rig_compare(&rig, images, name, problem), -EPERM);
    struct file_names names = rig_whole(images);
    cr_assert_eq(names.count, 1);
    cr_expect_str_eq(names.names[0], name);
    file_names_finish(&names);
    cr_assert_eq(image_folder_open(images, IMAGE_TO_SWEEP, &folder, problem), 0, "%s", problem);
    cr_expect_eq(image_folder_sweep(folder, &swept, problem), 0);
    cr_expect(strstr(problem, "chunks are kept"), "%s", problem);
    cr_expect_eq(swept.chunks, 0);
    cr_expect_eq(swept.images, 0);
    image_folder_close(folder);
}

Test(image, follows_no_link_and_waits_at_no_pipe)
{
    struct image_written written = write_image(IMAGE_PACKS);
    struct image_digest digest = image_chunk_digest(rig.objects[0].bytes, IMAGE_CHUNK);
    char name[IMAGE_CHUNK_NAME], file[PATH_MAX], elsewhere[PATH_MAX];
    image_chunk_name(&digest, name);
    snprintf(file, sizeof(file), "%s/chunks/%s", images, name);
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", above);
    cr_assert_eq(rename(file, elsewhere), 0);
    cr_assert_eq(symlink(elsewhere, file), 0);
    cr_expect_eq(rig_compare(&rig, images, written.name, problem), -EPERM);
    cr_assert_eq(unlink(file), 0);
    cr_assert_eq(mkfifo(file, 0600), 0);
    cr_expect_eq(rig_compare(&rig, images, written.name, problem), -EPERM);
    cr_assert_eq(unlink(file), 0);
    cr_assert_eq(rename(elsewhere, file), 0);
    cr_assert_eq(chmod(file, 0622), 0);
    cr_expect_eq(rig_compare(&rig, images, written.name, problem), -EPERM);
    cr_assert_eq(chmod(file, 0600), 0);
    expect_good(written.name);
    snprintf(file, sizeof(file), "%s/%s", images, written.name);
    cr_assert_eq(rename(file, elsewhere), 0);
    cr_assert_eq(symlink(elsewhere, file), 0);
    expect_kept(written.name);
    cr_assert_eq(unlink(file), 0);
    cr_assert_eq(symlink("/nowhere", file), 0);
    expect_kept(written.name);
    cr_assert_eq(unlink(file), 0);
    cr_assert_eq(rename(elsewhere, file), 0);
    expect_good(written.name);
}

Test(image, has_a_name_of_one_shape)
{
    static const char *const others[] = {"",
                                         ".",
                                         "..",
                                         "chunks",
                                         "20261125T024255.123-",
                                         "20261125T024255.123-4711/../x",
                                         "20261125T024255.123-471x",
                                         "20261125t024255.123-4711",
                                         "20261125T024255.123-471147114711471147"};
    cr_expect(image_name_is_valid("20261125T024255.123-4711"));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        cr_expect(!image_name_is_valid(others[i]), "%s", others[i]);
        cr_expect_eq(rig_compare(&rig, images, others[i], problem), -ENOENT);
    }
}

Test(image, keeps_the_chunks_of_others_when_it_is_removed)
{
    struct rig before;
    rig_init(&before);
    struct image_written one = write_image(IMAGE_PACKS);
    rig_change(&rig, 0, 1);
    struct image_written other = write_image(IMAGE_PACKS);
    struct image_folder *folder;
    struct image_swept swept;
    cr_assert_eq(image_folder_open(images, IMAGE_TO_SWEEP, &folder, problem), 0, "%s", problem);
    cr_expect_eq(image_folder_remove(folder, one.name), 0);
    cr_expect_eq(image_folder_remove(folder, one.name), -ENOENT);
    cr_expect_eq(image_folder_sweep(folder, &swept, problem), 0);
    image_folder_close(folder);
    cr_expect_eq(swept.images, 1);
    cr_expect_eq(swept.chunks, 1);
    cr_expect_eq(rig_chunks(images), CHUNKS);
    expect_good(other.name);
    cr_expect_eq(rig_compare(&before, images, one.name, problem), -ENOENT);
    rig_finish(&before);
}

Test(image, is_not_removed_while_it_is_held)
{
    struct image_written written = write_image(IMAGE_PACKS);
    struct image_folder *folder;
    struct owned hold;
    cr_assert_eq(image_folder_open(images, IMAGE_TO_READ, &folder, problem), 0);
    cr_assert_eq(image_folder_hold(folder, written.name, &hold), 0);
    image_folder_close(folder);
    cr_assert_eq(image_folder_open(images, IMAGE_TO_SWEEP, &folder, problem), 0);
    cr_expect_eq(image_folder_remove(folder, written.name), -EBUSY);
    image_folder_close(folder);
    expect_good(written.name);
    cr_assert_eq(image_folder_open(images, IMAGE_TO_SWEEP, &folder, problem), 0);
    owned_close(&hold);
    cr_expect_eq(image_folder_remove(folder, written.name), 0);
    image_folder_close(folder);
}

static size_t images_there(void)
{
    struct image_folder *folder;
    struct file_names names;
    size_t whole = 0;
    cr_assert_eq(image_folder_open(images, IMAGE_TO_READ, &folder, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_names(folder, &names), 0);
    for (size_t i = 0; i < names.count; i++)
        whole += image_folder_is_whole(folder, names.names[i]);
    file_names_finish(&names);
    image_folder_close(folder);
    return whole;
}

Test(image, is_removed_when_enough_later_ones_of_its_program_are_there)
{
    struct image_written written[4];
    struct image_folder *folder;
    struct owned hold;
    for (size_t i = 0; i < ARRAY_SIZE(written); i++) {
        rig_change(&rig, 0, 1);
        written[i] = write_image(IMAGE_PACKS);
    }
    const char *last = written[ARRAY_SIZE(written) - 1].name;
    cr_assert_eq(image_folder_open(images, IMAGE_TO_READ, &folder, problem), 0);
    cr_assert_eq(image_folder_hold(folder, written[0].name, &hold), 0);
    image_folder_close(folder);
    cr_expect_eq(image_keep_last(images, last, 4, problem), 0);
    cr_expect_eq(images_there(), 4);
    cr_expect_eq(image_keep_last(images, last, 2, problem), 0, "%s", problem);
    cr_expect_eq(images_there(), 3, "one is held, one went");
    expect_good(written[3].name);
    cr_expect_eq(rig_chunks(images), CHUNKS + 2, "with what it alone named");
    owned_close(&hold);
    cr_expect_eq(image_keep_last(images, last, 2, problem), 0, "%s", problem);
    cr_expect_eq(images_there(), 2);
    cr_expect_eq(rig_chunks(images), CHUNKS + 1);
    cr_expect_eq(image_keep_last("/no/such/folder", last, 2, problem), -ENOENT);
}

Test(image, stays_where_another_program_of_that_name_keeps_its_last)
{
    static const char *const leases[] = {NULL, "0123456789abcdef", "fedcba9876543210"};
    for (size_t i = 0; i < ARRAY_SIZE(leases); i++) {
        rig.pid = 4000 + i;
        rig.lease = leases[i];
        write_image(IMAGE_PACKS);
    }
    /* Of the right that the second has, in a new process; and of no right, in none of theirs. */
    rig.lease = leases[1];
    struct image_written last = write_image(IMAGE_PACKS);
    cr_expect_eq(image_keep_last(images, last.name, 1, problem), 0, "%s", problem);
    cr_expect_eq(images_there(), 3, "the one before it has gone");
    rig.generation = 1;
    write_image(IMAGE_PACKS);
    rig.generation = 0;
    last = write_image(IMAGE_PACKS);
    cr_expect_eq(image_keep_last(images, last.name, 1, problem), 0, "%s", problem);
    cr_expect_eq(images_there(), 4, "that of who took the right stays");
    rig.lease = NULL;
    rig.pid = 1;
    last = write_image(IMAGE_PACKS);
    cr_expect_eq(image_keep_last(images, last.name, 1, problem), 0, "%s", problem);
    cr_expect_eq(images_there(), 5);
}

Test(image, is_later_than_all_others_whatever_the_clock_says)
{
    struct image_written one = write_image(IMAGE_PACKS), two;
    char from[PATH_MAX], to[PATH_MAX], later[IMAGE_NAME_MAX];
    memcpy(later, one.name, sizeof(later));
    memcpy(later, "2099", 4);
    snprintf(from, sizeof(from), "%s/%s", images, one.name);
    snprintf(to, sizeof(to), "%s/%s", images, later);
    cr_assert_eq(rename(from, to), 0);
    two = write_image(IMAGE_PACKS);
    cr_expect_gt(strcmp(two.name, later), 0, "%s is not later than %s", two.name, later);
    cr_expect_eq(image_keep_last(images, two.name, 1, problem), 0, "%s", problem);
    expect_good(two.name);
    /* What is the name of no time is later than nothing. */
    snprintf(to, sizeof(to), "%s/%s", images, "99991332T256199.999-1");
    cr_assert_eq(mkdir(to, 0700), 0);
    expect_good(write_image(IMAGE_PACKS).name);
}

Test(image, keeps_all_chunks_while_one_cannot_be_read)
{
    struct image_written one = write_image(IMAGE_PACKS);
    rig_change(&rig, 0, 1);
    struct image_written other = write_image(IMAGE_PACKS);
    char file[PATH_MAX];
    snprintf(file, sizeof(file), "%s/%s/manifest", images, one.name);
    cr_assert_eq(truncate(file, 100), 0);
    struct image_folder *folder;
    struct image_swept swept;
    cr_assert_eq(image_folder_open(images, IMAGE_TO_SWEEP, &folder, problem), 0, "%s", problem);
    cr_expect_eq(image_folder_remove(folder, other.name), 0);
    cr_expect_eq(image_folder_sweep(folder, &swept, problem), 0);
    cr_expect(strstr(problem, one.name), "%s", problem);
    cr_expect_eq(rig_chunks(images), CHUNKS + 1);
    cr_expect_eq(image_folder_remove(folder, one.name), 0);
    cr_expect_eq(image_folder_sweep(folder, &swept, problem), 0);
    cr_expect_str_eq(problem, "");
    cr_expect_eq(rig_chunks(images), 0);
    image_folder_close(folder);
}

Test(image, is_not_swept_while_it_is_written)
{
    struct image_folder *folder, *other, *third;
    struct owned image;
    char name[IMAGE_NAME_MAX];
    cr_assert_eq(image_folder_open(images, IMAGE_TO_WRITE, &folder, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_open(images, IMAGE_TO_WRITE, &other, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_begin(other, name, &image), 0);
    /* Whoever came first, and left. */
    image_folder_close(folder);
    cr_assert_eq(image_folder_open(images, IMAGE_TO_WRITE, &third, problem), 0, "%s", problem);
    cr_expect_eq(rig_unfinished(images), 1);
    image_folder_close(third);
    owned_close(&image);
    image_folder_close(other);
    cr_assert_eq(image_folder_open(images, IMAGE_TO_WRITE, &third, problem), 0, "%s", problem);
    cr_expect_eq(rig_unfinished(images), 0);
    image_folder_close(third);
}

Test(image, is_locked_by_no_child_of_a_fork)
{
    struct image_folder *folder, *again;
    int ready[2];
    cr_assert_eq(image_folder_open(images, IMAGE_TO_WRITE, &folder, problem), 0, "%s", problem);
    cr_assert_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ready[1]);
        char byte;
        _exit(read(ready[0], &byte, 1) < 0);
    }
    close(ready[0]);
    image_folder_close(folder);
    cr_expect_eq(image_folder_open(images, IMAGE_TO_SWEEP, &again, problem), 0, "%s", problem);
    image_folder_close(again);
    close(ready[1]);
    cr_assert_eq(waitpid(child, NULL, 0), child);
}
