#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/image/image_keep.h"
#include "tests/state/image/faults.h"
#include "tests/state/image/rig.h"
#include "tests/support/folder.h"

/* Images on disk, without any program or driver. */

static char above[SCRATCH_MAX], path[SCRATCH_MAX + 16];
static char problem[IMAGE_PROBLEM_MAX];
static struct rig rig;

static void setup(void)
{
    folder_make(above);
    snprintf(path, sizeof(path), "%s/images", above);
    rig_init(&rig);
}
static void teardown(void)
{
    rig_finish(&rig);
}
TestSuite(image, .init = setup, .fini = teardown, .timeout = 300);

static struct image_written write_image(enum image_packing packing)
{
    struct image_written written;
    cr_assert_eq(rig_write(&rig, path, packing, true, &written, problem), 0, "%s", problem);
    return written;
}

static void expect_good(const char *name)
{
    cr_expect_eq(rig_compare(&rig, path, name, problem), 0, "%s: %s", name, problem);
}

/* 3 chunks of noise, 2 of words, one small one of words. */
#define CHUNKS 6

Test(image, gives_back_what_was_written)
{
    for (int packing = IMAGE_PACKS_IF_FASTER; packing <= IMAGE_PACKS_NOT; packing++) {
        struct image_written written = write_image((enum image_packing)packing);
        expect_good(written.name);
        cr_expect_eq(written.chunks, CHUNKS);
        cr_expect_eq(written.shared, packing == IMAGE_PACKS_IF_FASTER ? 0 : CHUNKS);
        cr_expect_eq(rig_chunks(path), CHUNKS);
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
    cr_expect_eq(rig_chunks(path), CHUNKS + 1);
    expect_good(other.name);
    /* In a process that knows nothing of the one before, too. */
    image_known_finish(&rig.known);
    other = write_image(IMAGE_PACKS);
    cr_expect_eq(other.shared, CHUNKS);
    expect_good(other.name);
    cr_expect_eq(rig_compare(&rig, path, one.name, problem), 1, "the first one is as it was");
}

Test(image, writes_a_chunk_again_that_is_missing_or_cut)
{
    struct image_written one = write_image(IMAGE_PACKS);
    char file[PATH_MAX];
    struct image_digest digest = image_chunk_digest(rig.objects[0].bytes, IMAGE_CHUNK);
    char name[IMAGE_CHUNK_NAME];
    image_chunk_name(&digest, name);
    snprintf(file, sizeof(file), "%s/chunks/%s", path, name);
    cr_assert_eq(truncate(file, 1000), 0);
    cr_expect_eq(rig_compare(&rig, path, one.name, problem), -EBADMSG);
    cr_expect(strstr(problem, name), "%s", problem);
    struct image_written other = write_image(IMAGE_PACKS);
    cr_expect_eq(other.shared, CHUNKS - 1);
    expect_good(other.name);
    cr_assert_eq(unlink(file), 0);
    cr_expect_eq(rig_compare(&rig, path, one.name, problem), -ENOENT);
    other = write_image(IMAGE_PACKS);
    expect_good(other.name);
    expect_good(one.name);
}

/* ---- parts ---- */

/* The file of the chunk that has the bytes an object has there now. */
static void file_of(unsigned number, uint64_t chunk, char ret_file[PATH_MAX])
{
    const struct rig_object *object = &rig.objects[number];
    char name[IMAGE_CHUNK_NAME];
    struct image_digest digest = image_chunk_digest(object->bytes + chunk * IMAGE_CHUNK,
                                                    image_chunk_size(object->size, chunk));
    image_chunk_name(&digest, name);
    snprintf(ret_file, PATH_MAX, "%s/chunks/%s", path, name);
}

static size_t size_of(const char *file)
{
    struct stat stat_of;
    cr_assert_eq(stat(file, &stat_of), 0, "%s", file);
    return (size_t)stat_of.st_size;
}

static struct image_swept remove_image(const char *name)
{
    struct image_folder *folder;
    struct image_swept swept;
    cr_assert_eq(image_folder_open(path, IMAGE_TO_SWEEP, &folder, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_remove(folder, name), 0);
    cr_assert_eq(image_folder_sweep(folder, &swept, problem), 0);
    cr_assert_str_eq(problem, "");
    image_folder_close(folder);
    return swept;
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
    cr_expect_eq(rig_chunks(path), CHUNKS + 1);
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
        cr_assert_eq(image_folder_open(path, IMAGE_TO_READ, &folder, problem), 0, "%s", problem);
        cr_assert_eq(image_folder_manifest(folder, written[i].name, &manifest, problem), 0);
        cr_expect_eq(image_verify(folder, &manifest, NULL, NULL, problem), 0, "%s", problem);
        image_manifest_finish(&manifest);
        image_folder_close(folder);
        if (i < 19)
            remove_image(written[i].name);
    }
    expect_good(written[19].name);
    remove_image(written[19].name);
    cr_expect_eq(rig_chunks(path), 0);
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
    cr_expect_eq(rig_compare(&rig, path, other.name, problem), -ENOENT);
    cr_expect(strstr(problem, strrchr(base, '/')), "%s", problem);
    one = write_image(IMAGE_PACKS);
    cr_expect_eq(one.shared, CHUNKS - 1);
    cr_expect_gt(one.stored, IMAGE_CHUNK);
    expect_good(one.name);
    expect_good(other.name);
    cr_expect_eq(remove_image(other.name).chunks, 0);
    cr_expect_eq(rig_chunks(path), CHUNKS);
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
    snprintf(file, sizeof(file), "%s/%s", path, other.name);
    cr_assert_eq(rig_unfinished(path), 0);
    cr_expect_eq(unlinkat(AT_FDCWD, strcat(file, "/manifest"), 0), 0);
    *strrchr(file, '/') = '\0';
    cr_expect_eq(rmdir(file), 0, "nothing else is left there");
}

/* ---- interrupted ---- */

/* What a child makes of an image that is interrupted at call @at. */
static int write_with_fault(enum fault fault, unsigned at, int error)
{
    pid_t child = fork();
    if (child == 0) {
        struct image_written written;
        faults_arm(fault, at, error);
        int failed = rig_write(&rig, path, IMAGE_PACKS, true, &written, problem);
        bool reached = faults_count() >= at;
        faults_arm(FAULT_NONE, 0, 0);
        /* Nobody knows better than the writer whether it is there. */
        if (!failed && rig_compare(&rig, path, written.name, problem) != 0)
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
    struct image_names names = rig_whole(path);
    cr_assert_geq(names.count, 1, "at %u", at);
    cr_assert_str_eq(names.names[0], first, "at %u", at);
    cr_assert_eq(rig_compare(before, path, first, problem), 0, "at %u: %s", at, problem);
    for (size_t i = 1; i < names.count; i++)
        cr_assert_eq(rig_compare(&rig, path, names.names[i], problem), 0, "at %u, %s: %s", at,
                     names.names[i], problem);
    image_names_finish(&names);
}

/* All but the first go, so that each try begins with the same. */
static void remove_others(void)
{
    struct image_folder *folder;
    struct image_swept swept;
    struct image_names names;
    cr_assert_eq(image_folder_open(path, IMAGE_TO_SWEEP, &folder, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_names(folder, &names), 0);
    for (size_t i = 1; i < names.count; i++)
        if (image_folder_is_whole(folder, names.names[i]))
            cr_assert_eq(image_folder_remove(folder, names.names[i]), 0);
    image_names_finish(&names);
    cr_assert_eq(image_folder_sweep(folder, &swept, problem), 0);
    cr_assert_str_eq(problem, "");
    image_folder_close(folder);
    cr_assert_eq(rig_unfinished(path), 0);
    cr_assert_eq(rig_chunks(path), CHUNKS);
}

/* Every call of a second image, which shares some chunks with the first. */
static void interrupt(enum fault fault, int error, bool ends_by_itself)
{
    struct rig before;
    rig_init(&before);
    struct image_written first = write_image(IMAGE_PACKS);
    rig_change(&rig, 0, 1);
    rig_change(&rig, 1, 0);
    rig_change_part(&rig, 0, 0, 7);
    unsigned at = 1;
    for (int status = 1; status != 0; at++) {
        status = write_with_fault(fault, at, error);
        cr_assert(status != 3, "at %u: an image that was said to be written is none", at);
        cr_assert(status != 4, "at %u: a failure has no reason", at);
        cr_assert(fault != FAULT_KILL || status == FAULT_KILLED || status == 0);
        expect_whole(&before, first.name, at);
        if (!ends_by_itself) {
            /* The next one sweeps what is left. */
            struct image_written next = write_image(IMAGE_PACKS);
            expect_good(next.name);
            cr_assert_eq(rig_unfinished(path), 0, "at %u", at);
        }
        remove_others();
    }
    cr_expect_gt(at, 40, "so few calls: %u", at);
    rig_finish(&before);
}

Test(image, is_absent_or_whole_when_the_machine_ends_at_any_call)
{
    interrupt(FAULT_KILL, 0, false);
}

Test(image, is_absent_or_whole_when_any_call_fails)
{
    interrupt(FAULT_ERROR, EIO, false);
}

Test(image, leaves_nothing_when_the_disk_gets_full_at_any_call)
{
    interrupt(FAULT_FULL, ENOSPC, true);
}

Test(image, leaves_nothing_of_itself_on_a_full_disk)
{
    struct image_written written;
    write_image(IMAGE_PACKS);
    rig_change(&rig, 0, 0);
    rig_change(&rig, 0, 1);
    faults_arm(FAULT_FULL, 20, ENOSPC);
    int error = rig_write(&rig, path, IMAGE_PACKS, true, &written, problem);
    faults_arm(FAULT_NONE, 0, 0);
    cr_expect_eq(error, -ENOSPC);
    cr_expect(strstr(problem, "No space left"), "%s", problem);
    cr_expect_eq(rig_unfinished(path), 0);
    cr_expect_eq(rig_chunks(path), CHUNKS);
}

Test(image, is_refused_where_files_may_not_become_as_long)
{
    struct rlimit limit, before;
    struct image_written written;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1 << 20;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_eq(rig_write(&rig, path, IMAGE_PACKS, true, &written, problem), -EFBIG);
    cr_expect(strstr(problem, "ulimit"), "%s", problem);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    cr_expect_eq(rig_chunks(path), 0);
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
    cr_assert_eq(image_folder_open(path, IMAGE_TO_WRITE, &folder, problem), 0, "%s", problem);
    cr_assert_not_null(image_manifest_add(&manifest, IMAGE_ABOUT));
    const struct image_plan plan = {.manifest = &manifest,
                                    .sources = rig.sources,
                                    .count = RIG_OBJECTS,
                                    .check = give_up,
                                    .data = &left};
    cr_expect_eq(image_write(folder, &plan, &written, problem), -ECANCELED);
    image_manifest_finish(&manifest);
    image_folder_close(folder);
    cr_expect_eq(rig_unfinished(path), 0);
    cr_expect_eq(rig_chunks(path), 0);
}

/* ---- damage ---- */

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
    snprintf(file, sizeof(file), "%s/%s/manifest", path, written.name);
    char *bytes = read_file(file, &size);
    cr_assert_gt(size, 500);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= (char)(1 << i % 8);
        put_file(file, bytes, size);
        cr_assert_eq(rig_compare(&rig, path, written.name, problem), -EBADMSG, "byte %zu", i);
        cr_assert(strstr(problem, "manifest: byte "), "byte %zu: %s", i, problem);
        bytes[i] ^= (char)(1 << i % 8);
    }
    for (size_t i = 0; i < size; i += 1 + size / 100) {
        put_file(file, bytes, i);
        cr_assert_eq(rig_compare(&rig, path, written.name, problem), -EBADMSG, "%zu bytes", i);
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
        int error = rig_compare(&rig, path, name, problem);
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
        cr_assert_eq(rig_compare(&rig, path, name, problem), -EBADMSG, "%zu bytes", i);
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
        snprintf(file, sizeof(file), "%s/chunks/%s", path, name);
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
    cr_expect_eq(rig_compare(&before, path, one.name, problem), -EBADMSG);
    expect_good(other.name);
    put_bytes(base, IMAGE_CHUNK_HEADER + 5 * IMAGE_PART, &good, 1);
    good = before.objects[0].bytes[6 * IMAGE_PART];
    byte = good ^ 1;
    put_bytes(base, IMAGE_CHUNK_HEADER + 6 * IMAGE_PART, &byte, 1);
    cr_expect_eq(rig_compare(&rig, path, other.name, problem), -EBADMSG);
    cr_expect(strstr(problem, strrchr(base, '/')), "%s", problem);
    put_bytes(base, IMAGE_CHUNK_HEADER + 6 * IMAGE_PART, &good, 1);
    expect_good(other.name);
    /* A base with a base is none. */
    rig_change_part(&rig, 0, 0, 21);
    second = image_chunk_digest(before.objects[0].bytes, IMAGE_CHUNK);
    third = write_image(IMAGE_PACKS_NOT);
    file_of(0, 0, file);
    put_bytes(file, 32, &first, sizeof(first));
    cr_expect_eq(rig_compare(&rig, path, third.name, problem), -EBADMSG);
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

/* What an image of version 1 has: each chunk is whole, and named by the digest of its bytes. */
static void make_old(const char *name)
{
    struct image_folder *folder;
    struct image_manifest manifest;
    char file[PATH_MAX], *encoded;
    size_t encoded_size;
    cr_assert_eq(image_folder_open(path, IMAGE_TO_READ, &folder, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_manifest(folder, name, &manifest, problem), 0, "%s", problem);
    image_folder_close(folder);
    for (unsigned i = 0; i < RIG_OBJECTS; i++) {
        const struct image_contents *contents = image_manifest_contents(&manifest, 100 - i);
        for (uint64_t j = 0; j < contents->digests.size / IMAGE_DIGEST; j++) {
            struct image_digest digest = image_contents_digest(contents, j);
            size_t size = image_chunk_size(contents->size, j);
            const char *bytes = rig.objects[i].bytes + j * IMAGE_CHUNK;
            const uint64_t long_size = size;
            char header[24] = "RESEATC\n\1", chunk[IMAGE_CHUNK_NAME];
            if (image_digest_is_zero(&digest))
                continue;
            image_chunk_name(&digest, chunk);
            snprintf(file, sizeof(file), "%s/chunks/%s", path, chunk);
            cr_assert_eq(unlink(file), 0);
            memcpy(header + 16, &long_size, sizeof(long_size));
            digest = image_digest_of(bytes, size);
            memcpy(contents->digests.bytes + j * IMAGE_DIGEST, &digest, sizeof(digest));
            image_chunk_name(&digest, chunk);
            snprintf(file, sizeof(file), "%s/chunks/%s", path, chunk);
            close(open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
            put_bytes(file, 0, header, sizeof(header));
            put_bytes(file, sizeof(header), bytes, size);
        }
    }
    cr_assert_eq(image_manifest_encode(&manifest, &encoded, &encoded_size), 0);
    snprintf(file, sizeof(file), "%s/%s/manifest", path, name);
    put_file(file, encoded, encoded_size);
    free(encoded);
    image_manifest_finish(&manifest);
}

Test(image, of_version_1_is_read_and_kept)
{
    struct image_written old = write_image(IMAGE_PACKS_NOT), other;
    make_old(old.name);
    expect_good(old.name);
    other = write_image(IMAGE_PACKS_NOT);
    cr_expect_eq(other.shared, 0);
    cr_expect_eq(rig_chunks(path), 2 * CHUNKS);
    expect_good(other.name);
    cr_expect_eq(remove_image(other.name).chunks, CHUNKS);
    expect_good(old.name);
    char file[PATH_MAX], name[IMAGE_CHUNK_NAME];
    struct image_digest digest = image_digest_of(rig.objects[0].bytes, IMAGE_CHUNK);
    image_chunk_name(&digest, name);
    snprintf(file, sizeof(file), "%s/chunks/%s", path, name);
    char byte = rig.objects[0].bytes[100] ^ 1;
    put_bytes(file, 24 + 100, &byte, 1);
    cr_expect_eq(rig_compare(&rig, path, old.name, problem), -EBADMSG);
    cr_expect(strstr(problem, name), "%s", problem);
}

/* ---- folders and names of others ---- */

Test(image, is_refused_in_a_folder_that_others_can_enter)
{
    struct image_folder *folder;
    struct image_written written = write_image(IMAGE_PACKS);
    cr_assert_eq(chmod(path, 0755), 0);
    for (int use = IMAGE_TO_READ; use <= IMAGE_TO_SWEEP; use++) {
        cr_expect_eq(image_folder_open(path, (enum image_use)use, &folder, problem), -EPERM);
        cr_expect(strstr(problem, path), "%s", problem);
    }
    cr_assert_eq(chmod(path, 0700), 0);
    cr_assert_eq(chmod(above, 0777), 0);
    for (int use = IMAGE_TO_READ; use <= IMAGE_TO_SWEEP; use++)
        cr_expect_eq(image_folder_open(path, (enum image_use)use, &folder, problem), -EPERM);
    cr_assert_eq(chmod(above, 0700), 0);
    expect_good(written.name);
    char none[PATH_MAX];
    snprintf(none, sizeof(none), "%s/none", above);
    cr_expect_eq(image_folder_open(none, IMAGE_TO_READ, &folder, problem), -ENOENT);
    cr_assert_eq(mkdir(none, 0700), 0);
    cr_expect_eq(image_folder_open(none, IMAGE_TO_READ, &folder, problem), -ENOENT);
    cr_expect(strstr(problem, "no images"), "%s", problem);
}

Test(image, follows_no_link_and_waits_at_no_pipe)
{
    struct image_written written = write_image(IMAGE_PACKS);
    struct image_digest digest = image_chunk_digest(rig.objects[0].bytes, IMAGE_CHUNK);
    char name[IMAGE_CHUNK_NAME], file[PATH_MAX], elsewhere[PATH_MAX];
    image_chunk_name(&digest, name);
    snprintf(file, sizeof(file), "%s/chunks/%s", path, name);
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", above);
    cr_assert_eq(rename(file, elsewhere), 0);
    cr_assert_eq(symlink(elsewhere, file), 0);
    cr_expect_eq(rig_compare(&rig, path, written.name, problem), -EPERM);
    cr_assert_eq(unlink(file), 0);
    cr_assert_eq(mkfifo(file, 0600), 0);
    cr_expect_eq(rig_compare(&rig, path, written.name, problem), -EPERM);
    cr_assert_eq(unlink(file), 0);
    cr_assert_eq(rename(elsewhere, file), 0);
    cr_assert_eq(chmod(file, 0622), 0);
    cr_expect_eq(rig_compare(&rig, path, written.name, problem), -EPERM);
    cr_assert_eq(chmod(file, 0600), 0);
    expect_good(written.name);
    snprintf(file, sizeof(file), "%s/%s", path, written.name);
    cr_assert_eq(rename(file, elsewhere), 0);
    cr_assert_eq(symlink(elsewhere, file), 0);
    cr_expect_eq(rig_compare(&rig, path, written.name, problem), -EPERM);
    struct image_names names = rig_whole(path);
    cr_expect_eq(names.count, 0, "a link is no image");
    image_names_finish(&names);
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
        cr_expect_eq(rig_compare(&rig, path, others[i], problem), -ENOENT);
    }
}

/* ---- removing ---- */

Test(image, keeps_the_chunks_of_others_when_it_is_removed)
{
    struct rig before;
    rig_init(&before);
    struct image_written one = write_image(IMAGE_PACKS);
    rig_change(&rig, 0, 1);
    struct image_written other = write_image(IMAGE_PACKS);
    struct image_folder *folder;
    struct image_swept swept;
    cr_assert_eq(image_folder_open(path, IMAGE_TO_SWEEP, &folder, problem), 0, "%s", problem);
    cr_expect_eq(image_folder_remove(folder, one.name), 0);
    cr_expect_eq(image_folder_remove(folder, one.name), -ENOENT);
    cr_expect_eq(image_folder_sweep(folder, &swept, problem), 0);
    image_folder_close(folder);
    cr_expect_eq(swept.images, 1);
    cr_expect_eq(swept.chunks, 1);
    cr_expect_eq(rig_chunks(path), CHUNKS);
    expect_good(other.name);
    cr_expect_eq(rig_compare(&before, path, one.name, problem), -ENOENT);
    rig_finish(&before);
}

Test(image, is_not_removed_while_it_is_held)
{
    struct image_written written = write_image(IMAGE_PACKS);
    struct image_folder *folder;
    struct owned hold;
    cr_assert_eq(image_folder_open(path, IMAGE_TO_READ, &folder, problem), 0);
    cr_assert_eq(image_folder_hold(folder, written.name, &hold), 0);
    image_folder_close(folder);
    cr_assert_eq(image_folder_open(path, IMAGE_TO_SWEEP, &folder, problem), 0);
    cr_expect_eq(image_folder_remove(folder, written.name), -EBUSY);
    image_folder_close(folder);
    expect_good(written.name);
    cr_assert_eq(image_folder_open(path, IMAGE_TO_SWEEP, &folder, problem), 0);
    owned_close(&hold);
    cr_expect_eq(image_folder_remove(folder, written.name), 0);
    image_folder_close(folder);
}

static size_t images_there(void)
{
    struct image_folder *folder;
    struct image_names names;
    size_t whole = 0;
    cr_assert_eq(image_folder_open(path, IMAGE_TO_READ, &folder, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_names(folder, &names), 0);
    for (size_t i = 0; i < names.count; i++)
        whole += image_folder_is_whole(folder, names.names[i]);
    image_names_finish(&names);
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
    cr_assert_eq(image_folder_open(path, IMAGE_TO_READ, &folder, problem), 0);
    cr_assert_eq(image_folder_hold(folder, written[0].name, &hold), 0);
    image_folder_close(folder);
    cr_expect_eq(image_keep_last(path, last, 4, problem), 0);
    cr_expect_eq(images_there(), 4);
    cr_expect_eq(image_keep_last(path, last, 2, problem), 0, "%s", problem);
    cr_expect_eq(images_there(), 3, "one is held, one went");
    expect_good(written[3].name);
    cr_expect_eq(rig_chunks(path), CHUNKS + 2, "with what it alone named");
    owned_close(&hold);
    cr_expect_eq(image_keep_last(path, last, 2, problem), 0, "%s", problem);
    cr_expect_eq(images_there(), 2);
    cr_expect_eq(rig_chunks(path), CHUNKS + 1);
    cr_expect_eq(image_keep_last("/no/such/folder", last, 2, problem), -ENOENT);
}

Test(image, stays_where_another_program_of_that_name_keeps_its_last)
{
    static const char *const rights[] = {NULL, "0123456789abcdef", "fedcba9876543210"};
    for (size_t i = 0; i < ARRAY_SIZE(rights); i++) {
        rig.pid = 4000 + i;
        rig.right = rights[i];
        write_image(IMAGE_PACKS);
    }
    /* Of the right that the second has, in a new process; and of no right, in none of theirs. */
    rig.right = rights[1];
    struct image_written last = write_image(IMAGE_PACKS);
    cr_expect_eq(image_keep_last(path, last.name, 1, problem), 0, "%s", problem);
    cr_expect_eq(images_there(), 3, "the one before it has gone");
    rig.generation = 1;
    write_image(IMAGE_PACKS);
    rig.generation = 0;
    last = write_image(IMAGE_PACKS);
    cr_expect_eq(image_keep_last(path, last.name, 1, problem), 0, "%s", problem);
    cr_expect_eq(images_there(), 4, "that of who took the right stays");
    rig.right = NULL;
    rig.pid = 1;
    last = write_image(IMAGE_PACKS);
    cr_expect_eq(image_keep_last(path, last.name, 1, problem), 0, "%s", problem);
    cr_expect_eq(images_there(), 5);
}

Test(image, is_later_than_all_others_whatever_the_clock_says)
{
    struct image_written one = write_image(IMAGE_PACKS), two;
    char from[PATH_MAX], to[PATH_MAX], later[IMAGE_NAME_MAX];
    memcpy(later, one.name, sizeof(later));
    memcpy(later, "2099", 4);
    snprintf(from, sizeof(from), "%s/%s", path, one.name);
    snprintf(to, sizeof(to), "%s/%s", path, later);
    cr_assert_eq(rename(from, to), 0);
    two = write_image(IMAGE_PACKS);
    cr_expect_gt(strcmp(two.name, later), 0, "%s is not later than %s", two.name, later);
    cr_expect_eq(image_keep_last(path, two.name, 1, problem), 0, "%s", problem);
    expect_good(two.name);
    /* What is the name of no time is later than nothing. */
    snprintf(to, sizeof(to), "%s/%s", path, "99991332T256199.999-1");
    cr_assert_eq(mkdir(to, 0700), 0);
    expect_good(write_image(IMAGE_PACKS).name);
}

Test(image, keeps_all_chunks_while_one_cannot_be_read)
{
    struct image_written one = write_image(IMAGE_PACKS);
    rig_change(&rig, 0, 1);
    struct image_written other = write_image(IMAGE_PACKS);
    char file[PATH_MAX];
    snprintf(file, sizeof(file), "%s/%s/manifest", path, one.name);
    cr_assert_eq(truncate(file, 100), 0);
    struct image_folder *folder;
    struct image_swept swept;
    cr_assert_eq(image_folder_open(path, IMAGE_TO_SWEEP, &folder, problem), 0, "%s", problem);
    cr_expect_eq(image_folder_remove(folder, other.name), 0);
    cr_expect_eq(image_folder_sweep(folder, &swept, problem), 0);
    cr_expect(strstr(problem, one.name), "%s", problem);
    cr_expect_eq(rig_chunks(path), CHUNKS + 1);
    cr_expect_eq(image_folder_remove(folder, one.name), 0);
    cr_expect_eq(image_folder_sweep(folder, &swept, problem), 0);
    cr_expect_str_eq(problem, "");
    cr_expect_eq(rig_chunks(path), 0);
    image_folder_close(folder);
}

Test(image, is_not_swept_while_it_is_written)
{
    struct image_folder *folder, *other, *third;
    struct owned image;
    char name[IMAGE_NAME_MAX];
    cr_assert_eq(image_folder_open(path, IMAGE_TO_WRITE, &folder, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_open(path, IMAGE_TO_WRITE, &other, problem), 0, "%s", problem);
    cr_assert_eq(image_folder_begin(other, name, &image), 0);
    /* Whoever came first, and left. */
    image_folder_close(folder);
    cr_assert_eq(image_folder_open(path, IMAGE_TO_WRITE, &third, problem), 0, "%s", problem);
    cr_expect_eq(rig_unfinished(path), 1);
    image_folder_close(third);
    owned_close(&image);
    image_folder_close(other);
    cr_assert_eq(image_folder_open(path, IMAGE_TO_WRITE, &third, problem), 0, "%s", problem);
    cr_expect_eq(rig_unfinished(path), 0);
    image_folder_close(third);
}

Test(image, is_locked_by_no_child_of_a_fork)
{
    struct image_folder *folder, *again;
    int ready[2];
    cr_assert_eq(image_folder_open(path, IMAGE_TO_WRITE, &folder, problem), 0, "%s", problem);
    cr_assert_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ready[1]);
        char byte;
        _exit(read(ready[0], &byte, 1) < 0);
    }
    close(ready[0]);
    image_folder_close(folder);
    cr_expect_eq(image_folder_open(path, IMAGE_TO_SWEEP, &again, problem), 0, "%s", problem);
    image_folder_close(again);
    close(ready[1]);
    cr_assert_eq(waitpid(child, NULL, 0), child);
}
