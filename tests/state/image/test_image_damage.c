#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/state/image/scene.h"

/* Images that are damaged, or made by somebody else. */

static char *read_file(const char *file, size_t *ret_size)
{
    struct stat stat_of;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0, "%s", file);
    cr_assert_eq(fstat(fd, &stat_of), 0);
    char *bytes = malloc((size_t)stat_of.st_size);
    cr_assert_eq(read(fd, bytes, (size_t)stat_of.st_size), stat_of.st_size);
    close(fd);
    *ret_size = (size_t)stat_of.st_size;
    return bytes;
}

static void put_file(const char *file, const char *bytes, size_t size)
{
    int fd = open(file, O_WRONLY | O_TRUNC | O_CLOEXEC);
    cr_assert_geq(fd, 0, "%s", file);
    for (size_t done = 0; done < size;) {
        ssize_t count = write(fd, bytes + done, size - done);
        cr_assert_gt(count, 0);
        done += (size_t)count;
    }
    close(fd);
}

Test(image, is_refused_when_any_byte_of_its_manifest_is_another)
{
    struct image_written written = write_image(IMAGE_PACKS);
    char file[PATH_MAX];
    size_t size;
    snprintf(file, sizeof(file), "%s/%s/manifest", images, written.name);
    char *bytes = read_file(file, &size);
    cr_assert_gt(size, 500);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= (char)(1 << i % 8);
        put_file(file, bytes, size);
        cr_assert_eq(rig_compare(&rig, images, written.name, problem), -EBADMSG, "byte %zu", i);
        cr_assert(strstr(problem, "manifest: byte "), "byte %zu: %s", i, problem);
        bytes[i] ^= (char)(1 << i % 8);
    }
    for (size_t i = 0; i < size; i += 1 + size / 100) {
        put_file(file, bytes, i);
        cr_assert_eq(rig_compare(&rig, images, written.name, problem), -EBADMSG, "%zu bytes", i);
    }
    put_file(file, bytes, size);
    expect_good(written.name);
    free(bytes);
}

/* They become files of those names. */
Test(image, names_files_of_a_process_in_its_folder_alone)
{
    static const char *const names[] = {"pages-1.img", "", ".", "..", "../x", "a/b", "/etc/x"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct image_record record, read;
        msgpack_sbuffer buffer;
        msgpack_sbuffer_init(&buffer);
        cr_assert_eq(image_record_init(&record, IMAGE_FILE), 0);
        record.file->name = strdup(names[i]);
        cr_assert_eq(image_record_encode(&record, &buffer), 0);
        int error = image_record_decode(buffer.data, buffer.size, &read, problem);
        cr_expect_eq(error, i == 0 ? 0 : -EBADMSG, "%s: %d", names[i], error);
        if (error == 0) {
            cr_expect_str_eq(read.file->name, names[i]);
            image_record_finish(&read);
        } else {
            cr_expect(strstr(problem, "\"name\" is not that of a file"), "%s", problem);
        }
        image_record_finish(&record);
        msgpack_sbuffer_destroy(&buffer);
    }
}

/* Only what decodes to the same bytes is taken. */
static void damage_chunk(const char *name, const char *file)
{
    size_t size;
    char *bytes = read_file(file, &size);
    unsigned refused = 0, tried = 0;
    for (size_t i = 0; i < size; i += i < 64 ? 1 : 1 + size / 40, tried++) {
        bytes[i] ^= (char)(1 << i % 8);
        put_file(file, bytes, size);
        int error = rig_compare(&rig, images, name, problem);
        /* There is no base of another name. */
        bool names = i >= 32 && i < IMAGE_CHUNK_HEADER;
        cr_assert(error == 0 || error == -EBADMSG || (names && error == -ENOENT), "byte %zu: %d", i,
                  error);
        cr_assert(error == 0 || strstr(problem, "/chunks/"), "%s", problem);
        cr_assert(error != 0 || i >= IMAGE_CHUNK_HEADER, "byte %zu", i);
        refused += error != 0;
        bytes[i] ^= (char)(1 << i % 8);
    }
    cr_expect_gt(refused, tried * 9 / 10);
    for (size_t i = 0; i < size; i += 1 + size / 10) {
        put_file(file, bytes, i);
        cr_assert_eq(rig_compare(&rig, images, name, problem), -EBADMSG, "%zu bytes", i);
    }
    put_file(file, bytes, size);
    expect_good(name);
    free(bytes);
}

Test(image, is_refused_when_a_chunk_is_damaged_or_cut)
{
    struct image_written written = write_image(IMAGE_PACKS);
    for (unsigned object = 0; object < 2; object++) {
        struct image_digest digest = image_chunk_digest(
            rig.objects[object].bytes + IMAGE_CHUNK, image_chunk_size(rig.objects[object].size, 1));
        char name[IMAGE_CHUNK_NAME], file[PATH_MAX];
        image_chunk_name(&digest, name);
        snprintf(file, sizeof(file), "%s/chunks/%s", images, name);
        damage_chunk(written.name, file);
    }
}

static void put_bytes(const char *file, off_t at, const void *bytes, size_t size)
{
    int fd = open(file, O_WRONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0, "%s", file);
    cr_assert_eq(pwrite(fd, bytes, size, at), (ssize_t)size);
    close(fd);
}

Test(image, is_refused_when_a_chunk_of_parts_or_its_base_is_damaged)
{
    char base[PATH_MAX], file[PATH_MAX];
    struct image_written one = write_image(IMAGE_PACKS_NOT), other, third;
    struct image_digest first, second;
    file_of(0, 0, base);
    rig_change_part(&rig, 0, 0, 5);
    rig_change_part(&rig, 0, 0, 20);
    first = image_chunk_digest(rig.objects[0].bytes, IMAGE_CHUNK);
    other = write_image(IMAGE_PACKS_NOT);
    file_of(0, 0, file);
    cr_expect_eq(size_of(file), IMAGE_CHUNK_HEADER + 2 * IMAGE_PART);
    damage_chunk(other.name, file);
    /* A byte of the base that it has itself, and one that it has not. */
    struct rig before;
    rig_init(&before);
    char good = before.objects[0].bytes[5 * IMAGE_PART], byte = good ^ 1;
    put_bytes(base, IMAGE_CHUNK_HEADER + 5 * IMAGE_PART, &byte, 1);
    cr_expect_eq(rig_compare(&before, images, one.name, problem), -EBADMSG);
    expect_good(other.name);
    put_bytes(base, IMAGE_CHUNK_HEADER + 5 * IMAGE_PART, &good, 1);
    good = before.objects[0].bytes[6 * IMAGE_PART];
    byte = good ^ 1;
    put_bytes(base, IMAGE_CHUNK_HEADER + 6 * IMAGE_PART, &byte, 1);
    cr_expect_eq(rig_compare(&rig, images, other.name, problem), -EBADMSG);
    cr_expect(strstr(problem, strrchr(base, '/')), "%s", problem);
    put_bytes(base, IMAGE_CHUNK_HEADER + 6 * IMAGE_PART, &good, 1);
    expect_good(other.name);
    /* A base with a base is none. */
    rig_change_part(&rig, 0, 0, 21);
    second = image_chunk_digest(before.objects[0].bytes, IMAGE_CHUNK);
    third = write_image(IMAGE_PACKS_NOT);
    file_of(0, 0, file);
    put_bytes(file, 32, &first, sizeof(first));
    cr_expect_eq(rig_compare(&rig, images, third.name, problem), -EBADMSG);
    cr_expect(strstr(problem, "not all of its bytes itself"), "%s", problem);
    put_bytes(file, 32, &second, sizeof(second));
    expect_good(third.name);
    rig_finish(&before);
}

Test(image, is_refused_when_a_header_says_what_cannot_be)
{
    static const struct {
        uint32_t parts;
        bool based;
        size_t size, has;
    } others[] = {
        {0, true, IMAGE_CHUNK, IMAGE_CHUNK},        {1, false, IMAGE_CHUNK, IMAGE_PART},
        {0x1ff, true, IMAGE_CHUNK, 9 * IMAGE_PART}, {1, true, IMAGE_CHUNK, IMAGE_PART - 1},
        {1, true, IMAGE_CHUNK, IMAGE_PART + 1},     {1U << 16, true, 16 * IMAGE_PART, IMAGE_PART},
        {1, true, 3 * IMAGE_PART, IMAGE_PART}};
    unsigned char header[IMAGE_CHUNK_HEADER];
    struct image_form form = {.size = IMAGE_CHUNK, .parts = 0xff, .base = {{7}}}, read;
    image_chunk_header(header, &form);
    cr_expect_null(image_chunk_check(header, sizeof(header) + 8 * IMAGE_PART, IMAGE_CHUNK, &read));
    cr_expect_eq(read.parts, 0xff);
    cr_expect(image_digest_same(&read.base, &form.base));
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        form = (struct image_form){
            .size = others[i].size, .parts = others[i].parts, .base = {{others[i].based}}};
        image_chunk_header(header, &form);
        cr_expect(image_chunk_check(header, sizeof(header) + others[i].has, others[i].size, &read),
                  "%zu", i);
    }
}
