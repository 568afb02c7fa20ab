#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/image/image_read.h"
#include "state/image/image_write.h"

/*
 * What an image costs: bench_images FOLDER [MIB [ROUNDS]]. In one run, of the same bytes in the
 * same folder: a plain sequential write with fsync, an image, a second one of which one percent
 * changed, where it is known what, in whole chunks and in parts all over, and one where that is not
 * known; and reading it back, the first and that in parts. FOLDER is made, and left empty. Bytes
 * are noise, which nothing makes smaller.
 */

static const char *folder;
static size_t size = (size_t)1 << 30;
static char *bytes;
static uint64_t *stamps;

_Noreturn static void fail(const char *what, int error)
{
    fprintf(stderr, "bench_images: %s: %s\n", what, strerror(-error));
    exit(1);
}

static double seconds(uint64_t began)
{
    return (double)(clock_now_ns() - began) / 1e9;
}

static void noise(char *at, size_t count, uint64_t seed)
{
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i + 8 <= count; i += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(at + i, &state, 8);
    }
}

static double plain_write(void)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/plain", folder);
    uint64_t began = clock_now_ns();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        fail(path, -errno);
    for (size_t done = 0; done < size;) {
        size_t part = size - done < IMAGE_CHUNK ? size - done : IMAGE_CHUNK;
        ssize_t count = write(fd, bytes + done, part);
        if (count <= 0)
            fail(path, -errno);
        done += (size_t)count;
    }
    if (fsync(fd) != 0)
        fail(path, -errno);
    double took = seconds(began);
    close(fd);
    unlink(path);
    return took;
}

static const void *look(const struct image_source *source, uint64_t at, size_t count, void *room)
{
    (void)source, (void)count, (void)room;
    return bytes + at;
}

static double image(const char *path, struct image_known *known, struct image_written *ret_written)
{
    const struct image_source source = {
        .id = 1, .size = size, .written = true, .look = look, .stamps = stamps};
    char problem[IMAGE_PROBLEM_MAX];
    struct image_manifest manifest = {0};
    struct image_folder *images;
    const struct image_plan plan = {
        .manifest = &manifest, .sources = &source, .count = 1, .known = known};
    uint64_t began = clock_now_ns();
    int error = image_folder_open(path, IMAGE_TO_WRITE, &images, problem);
    if (!error && !image_manifest_add(&manifest, IMAGE_ABOUT))
        error = -ENOMEM;
    if (!error)
        error = image_write(images, &plan, ret_written, problem);
    if (error)
        fail(problem, error);
    double took = seconds(began);
    image_manifest_finish(&manifest);
    image_folder_close(images);
    return took;
}

static double read_back(const char *path, const char *name)
{
    char problem[IMAGE_PROBLEM_MAX];
    struct image_manifest manifest;
    struct image_folder *images;
    uint64_t began = clock_now_ns();
    int error = image_folder_open(path, IMAGE_TO_READ, &images, problem);
    if (!error)
        error = image_folder_manifest(images, name, &manifest, problem);
    if (!error)
        error = image_verify(images, &manifest, NULL, NULL, problem);
    if (error)
        fail(problem, error);
    double took = seconds(began);
    image_manifest_finish(&manifest);
    image_folder_close(images);
    return took;
}

static void change_part(size_t part, uint64_t seed)
{
    noise(bytes + part * IMAGE_PART, IMAGE_PART, seed);
    stamps[part]++;
}

/* One percent, in whole chunks. */
static void change(unsigned round)
{
    size_t count = size / IMAGE_CHUNK, every = 100;
    for (size_t i = round % every; i < count; i += every)
        for (size_t part = 0; part < IMAGE_PARTS; part++)
            change_part(i * IMAGE_PARTS + part, i * IMAGE_PARTS + part + 1000003 * (round + 1));
}

/* One percent, in parts all over. */
static void change_all_over(unsigned round)
{
    size_t count = size / IMAGE_PART;
    uint64_t state = round;
    for (size_t i = 0; i < count / 100; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        change_part((state >> 33) % count, state);
    }
}

static void clear(const char *path)
{
    char problem[IMAGE_PROBLEM_MAX];
    struct image_folder *images;
    struct file_names names;
    struct image_swept swept;
    int error = image_folder_open(path, IMAGE_TO_SWEEP, &images, problem);
    if (!error)
        error = image_folder_names(images, &names);
    for (size_t i = 0; !error && i < names.count; i++)
        error = image_folder_remove(images, names.names[i]);
    if (!error) {
        file_names_finish(&names);
        error = image_folder_sweep(images, &swept, problem);
    }
    if (error)
        fail(path, error);
    image_folder_close(images);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare);
    return values[n / 2];
}

#define ROUNDS_MAX 101

int main(int argc, char **argv)
{
    if (argc < 2)
        fail("bench_images FOLDER [MIB [ROUNDS]]", -EINVAL);
    folder = argv[1];
    size = argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) << 20 : size;
    size_t rounds = argc > 3 ? strtoul(argv[3], NULL, 10) : 5;
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    bytes = malloc(size);
    stamps = calloc(size / IMAGE_PART + 1, sizeof(*stamps));
    if (!bytes || !stamps)
        fail("memory", -ENOMEM);
    noise(bytes, size, 1);
    for (size_t i = 0; i <= size / IMAGE_PART; i++)
        stamps[i] = 1;
    char path[4096];
    snprintf(path, sizeof(path), "%s/images", folder);
    double first[ROUNDS_MAX] = {0}, second[ROUNDS_MAX] = {0}, hashed[ROUNDS_MAX] = {0};
    double spread[ROUNDS_MAX] = {0}, parts[ROUNDS_MAX] = {0};
    double plain[ROUNDS_MAX] = {0}, took[ROUNDS_MAX] = {0}, back[ROUNDS_MAX] = {0};
    (void)plain_write();
    for (unsigned i = 0; i < rounds; i++) {
        struct image_known known = {0};
        struct image_written written;
        double before = plain_write();
        double one = image(path, &known, &written);
        back[i] = before / read_back(path, written.name);
        change(2 * i);
        second[i] = image(path, &known, &written) / one;
        change_all_over(i);
        spread[i] = image(path, &known, &written) / one;
        parts[i] = before / read_back(path, written.name);
        change(2 * i + 1);
        hashed[i] = image(path, NULL, &written) / one;
        image_known_finish(&known);
        clear(path);
        double after = plain_write();
        plain[i] = (before + after) / 2;
        took[i] = one;
        first[i] = plain[i] / one;
    }
    double gigabytes = (double)size / 1e9;
    printf("%.2f GB, medians of %zu rounds\n", gigabytes, rounds);
    printf("plain write and fsync          %7.3f s  %6.2f GB/s\n", median(plain, rounds),
           gigabytes / median(plain, rounds));
    printf("image                          %7.3f s  %6.2f GB/s\n", median(took, rounds),
           gigabytes / median(took, rounds));
    printf("image's speed : plain write's            %6.2f\n", median(first, rounds));
    printf("reading it    : plain write's            %6.2f\n", median(back, rounds));
    printf("second image, 1%% changed, known which    %6.3f of the first's time\n",
           median(second, rounds));
    printf("the same, in parts all over              %6.3f of the first's time\n",
           median(spread, rounds));
    printf("reading that  : plain write's            %6.2f\n", median(parts, rounds));
    printf("second image, 1%% changed, nothing known  %6.3f of the first's time\n",
           median(hashed, rounds));
    free(bytes);
    free(stamps);
    return 0;
}
