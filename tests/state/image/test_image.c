#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/state/image/scene.h"

/* Images on disk, without any program or driver: what they give back, and what they share. */

Test(image, gives_back_what_was_written)
{
    for (int packing = IMAGE_PACKS_IF_FASTER; packing <= IMAGE_PACKS_NOT; packing++) {
        struct image_written written = write_image((enum image_packing)packing);
        expect_good(written.name);
        cr_expect_eq(written.chunks, CHUNKS);
        cr_expect_eq(written.shared, packing == IMAGE_PACKS_IF_FASTER ? 0 : CHUNKS);
        cr_expect_eq(rig_chunks(images), CHUNKS);
    }
}

Test(image, packs_what_gets_smaller_and_nothing_else)
{
    struct image_written written = write_image(IMAGE_PACKS);
    uint64_t noise = rig.objects[0].size, words = rig.objects[1].size;
    cr_expect_geq(written.stored, noise);
    cr_expect_lt(written.stored, noise + words / 16);
    expect_good(written.name);
}

Test(image, shares_what_did_not_change)
{
    struct image_written one = write_image(IMAGE_PACKS), other;
    cr_expect_eq(rig.looks, 10, "each chunk, and the small one, was looked at: %u", rig.looks);
    rig_change(&rig, 0, 1);
    other = write_image(IMAGE_PACKS);
    cr_expect_eq(rig.looks, 2, "the one that changed, and the small one: %u", rig.looks);
    cr_expect_eq(other.shared, CHUNKS - 1);
    cr_expect_leq(other.stored, IMAGE_CHUNK_FILE_MAX);
    cr_expect_eq(rig_chunks(images), CHUNKS + 1);
    expect_good(other.name);
    /* In a process that knows nothing of the one before, too. */
    image_known_finish(&rig.known);
    other = write_image(IMAGE_PACKS);
    cr_expect_eq(other.shared, CHUNKS);
    expect_good(other.name);
    cr_expect_eq(rig_compare(&rig, images, one.name, problem), 1, "the first one is as it was");
}

Test(image, writes_a_chunk_again_that_is_missing_or_cut)
{
    struct image_written one = write_image(IMAGE_PACKS);
    char file[PATH_MAX];
    struct image_digest digest = image_chunk_digest(rig.objects[0].bytes, IMAGE_CHUNK);
    char name[IMAGE_CHUNK_NAME];
    image_chunk_name(&digest, name);
    snprintf(file, sizeof(file), "%s/chunks/%s", images, name);
    cr_assert_eq(truncate(file, 1000), 0);
    cr_expect_eq(rig_compare(&rig, images, one.name, problem), -EBADMSG);
    cr_expect(strstr(problem, name), "%s", problem);
    struct image_written other = write_image(IMAGE_PACKS);
    cr_expect_eq(other.shared, CHUNKS - 1);
    expect_good(other.name);
    cr_assert_eq(unlink(file), 0);
    cr_expect_eq(rig_compare(&rig, images, one.name, problem), -ENOENT);
    other = write_image(IMAGE_PACKS);
    expect_good(other.name);
    expect_good(one.name);
}

Test(image, looks_at_and_writes_the_parts_that_changed)
{
    struct image_written one = write_image(IMAGE_PACKS), other;
    rig_change_part(&rig, 0, 1, 3);
    rig_change_part(&rig, 0, 1, 4);
    rig_change_part(&rig, 0, 1, 31);
    other = write_image(IMAGE_PACKS_NOT);
    cr_expect_eq(rig.looks, 1 + 2 + 3, "the small one, two runs, and what is written: %u",
                 rig.looks);
    cr_expect_eq(other.shared, CHUNKS - 1);
    cr_expect_eq(other.stored, IMAGE_CHUNK_HEADER + 3 * IMAGE_PART);
    cr_expect_eq(rig_chunks(images), CHUNKS + 1);
    expect_good(other.name);
    /* It is shared as any other is, also by who knows nothing. */
    other = write_image(IMAGE_PACKS);
    cr_expect_eq(other.shared, CHUNKS);
    expect_good(other.name);
    image_known_finish(&rig.known);
    other = write_image(IMAGE_PACKS);
    cr_expect_eq(other.shared, CHUNKS);
    expect_good(other.name);
    /* What is packed, and an object's last part. */
    rig_change_part(&rig, 1, 0, 9);
    rig_change_part(&rig, 0, 2, 0);
    other = write_image(IMAGE_PACKS);
    cr_expect_lt(other.stored, IMAGE_PART / 2 + 1001);
    expect_good(other.name);
    remove_image(one.name);
    expect_good(other.name);
}

Test(image, keeps_few_parts_without_the_others_through_many_images)
{
    struct image_written written[20];
    unsigned whole = 0;
    for (unsigned i = 0; i < 20; i++) {
        /* Alternately one that is new, and one that changed before. */
        rig_change_part(&rig, 0, 0, i % 2 ? i : 1);
        written[i] = write_image(IMAGE_PACKS_NOT);
        expect_good(written[i].name);
        if (i > 0 && written[i].stored > IMAGE_CHUNK)
            whole++;
        else if (i > 0)
            cr_expect_leq(written[i].stored, IMAGE_CHUNK_HEADER + IMAGE_CHUNK / 4, "%u", i);
    }
    cr_expect_eq(whole, 1, "every so often all of it is written: %u", whole);
    /* In any order, what is left is whole. */
    for (unsigned i = 0; i < 19; i += 2)
        remove_image(written[i].name);
    for (unsigned i = 1; i < 20; i += 2) {
        struct image_folder *folder;
        struct image_manifest manifest;
        cr_assert_eq(image_folder_open(images, IMAGE_TO_READ, &folder, problem), 0, "%s", problem);
        cr_assert_eq(image_folder_manifest(folder, written[i].name, &manifest, problem), 0);
        cr_expect_eq(image_verify(folder, &manifest, NULL, NULL, problem), 0, "%s", problem);
        image_manifest_finish(&manifest);
        image_folder_close(folder);
        if (i < 19)
            remove_image(written[i].name);
    }
    expect_good(written[19].name);
    remove_image(written[19].name);
    cr_expect_eq(rig_chunks(images), 0);
}

Test(image, keeps_what_a_chunk_is_based_on_for_as_long_as_that_is_named)
{
    struct image_written one = write_image(IMAGE_PACKS), other;
    char file[PATH_MAX], base[PATH_MAX], away[PATH_MAX];
    file_of(0, 0, base);
    rig_change_part(&rig, 0, 0, 5);
    other = write_image(IMAGE_PACKS);
    file_of(0, 0, file);
    /* Also while the file that says so is away. */
    snprintf(away, sizeof(away), "%s/away", above);
    cr_assert_eq(rename(file, away), 0);
    cr_expect_eq(remove_image(one.name).chunks, 0);
    cr_assert_eq(rename(away, file), 0);
    expect_good(other.name);
    /* A base that is not there is none. */
    cr_assert_eq(rename(base, away), 0);
    cr_expect_eq(rig_compare(&rig, images, other.name, problem), -ENOENT);
    cr_expect(strstr(problem, strrchr(base, '/')), "%s", problem);
    one = write_image(IMAGE_PACKS);
    cr_expect_eq(one.shared, CHUNKS - 1);
    cr_expect_gt(one.stored, IMAGE_CHUNK);
    expect_good(one.name);
    expect_good(other.name);
    cr_expect_eq(remove_image(other.name).chunks, 0);
    cr_expect_eq(rig_chunks(images), CHUNKS);
    rig_change_part(&rig, 0, 0, 6);
    other = write_image(IMAGE_PACKS);
    cr_expect_lt(other.stored, 2 * IMAGE_PART);
    expect_good(other.name);
}

Test(image, bases_nothing_on_a_chunk_that_is_gone)
{
    char base[PATH_MAX];
    write_image(IMAGE_PACKS);
    file_of(0, 0, base);
    cr_assert_eq(unlink(base), 0);
    rig_change_part(&rig, 0, 0, 5);
    struct image_written other = write_image(IMAGE_PACKS);
    cr_expect_gt(other.stored, IMAGE_CHUNK);
    expect_good(other.name);
}

/* What has a part of a chunk takes the place of nothing. */
Test(image, writes_all_of_a_chunk_where_its_name_is_in_use)
{
    char file[PATH_MAX];
    write_image(IMAGE_PACKS);
    rig_change_part(&rig, 0, 0, 5);
    file_of(0, 0, file);
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    close(fd);
    struct image_written other = write_image(IMAGE_PACKS);
    cr_expect_eq(size_of(file), IMAGE_CHUNK_FILE_MAX);
    expect_good(other.name);
    snprintf(file, sizeof(file), "%s/%s", images, other.name);
    cr_assert_eq(rig_unfinished(images), 0);
    cr_expect_eq(unlinkat(AT_FDCWD, strcat(file, "/manifest"), 0), 0);
    *strrchr(file, '/') = '\0';
    cr_expect_eq(rmdir(file), 0, "nothing else is left there");
}
