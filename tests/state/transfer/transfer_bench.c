#include "tests/state/transfer/transfer_bench.h"

#include "tests/support/cases.h"
#include <dirent.h>

uint8_t pattern(uint32_t seed, size_t index)
{
    uint64_t x = ((uint64_t)seed << 40) ^ index;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (uint8_t)(x >> 56);
}

LOOPS_ALONE static void fill_part(char *bytes, uint32_t seed, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        bytes[i] = (char)pattern(seed, i);
}

void fill(char *bytes, uint32_t seed, size_t size)
{
    fill_part(bytes, seed, 0, size);
}

void check(const char *bytes, size_t size, size_t begin, size_t end, uint32_t seed, uint32_t other)
{
    char *wanted = malloc(size + 1);
    fill(wanted, other, size);
    fill_part(wanted, seed, begin, end);
    if (memcmp(bytes, wanted, size) != 0) {
        size_t i = 0;
        while (bytes[i] == wanted[i])
            i++;
        cr_assert_fail("byte %zu of %zu (moved [%zu, %zu)): %d, wanted %d", i, size, begin, end,
                       (uint8_t)bytes[i], (uint8_t)wanted[i]);
    }
    free(wanted);
}

struct transfer *start(const struct bench *bench, const struct transfer_shape *shape,
                       uint64_t total, const struct transfer_limits *limits)
{
    struct transfer *transfer = NULL;
    struct residence *from = bench->way == UP ? NULL : &bench->from->residence;
    struct residence *to = bench->way == DOWN ? NULL : &bench->to->residence;
    int error = shape ? transfer_create_shaped(from, to, shape, limits, &transfer)
                      : transfer_create(from, to, total, limits, &transfer);
    cr_assert_eq(error, 0, "create: %d", error);
    return transfer;
}

void buffer_init(struct buffer *buffer, const struct bench *bench, uint32_t seed, size_t size,
                 size_t offset, size_t length)
{
    *buffer = (struct buffer){.size = size, .offset = offset, .length = length, .seed = seed};
    buffer->host = calloc(1, size);
    fill(buffer->host, seed, size);
    if (bench->way != UP)
        buffer->from = rig_buffer(bench->from, size, buffer->host);
    if (bench->way != UP)
        fill(buffer->host, ~seed, size);
    if (bench->way != DOWN) {
        char *other = calloc(1, size);
        fill(other, ~seed, size);
        buffer->to = rig_buffer(bench->to, size, other);
        free(other);
    }
}

struct transfer_item buffer_item(const struct buffer *buffer, const struct bench *bench)
{
    return (struct transfer_item){.from = buffer->from,
                                  .to = buffer->to,
                                  .host = bench->way == ACROSS ? NULL : buffer->host,
                                  .offset = buffer->offset,
                                  .size = buffer->length};
}

void buffer_check(struct buffer *buffer, const struct bench *bench)
{
    if (bench->way != DOWN)
        rig_read(bench->to, buffer->to, buffer->size, buffer->host);
    check(buffer->host, buffer->size, buffer->offset, buffer->offset + buffer->length, buffer->seed,
          ~buffer->seed);
}

void buffer_finish(struct buffer *buffer, const struct bench *bench)
{
    if (buffer->from)
        bench->from->real->clReleaseMemObject(buffer->from);
    if (buffer->to)
        bench->to->real->clReleaseMemObject(buffer->to);
    free(buffer->host);
}

void each_shape(void (*run)(const struct bench *, const struct transfer_shape *, uint64_t))
{
    struct rig *a = rig_create(0, true), *b = rig_create(1, true);
    const struct bench benches[] = {{DOWN, a, NULL}, {UP, NULL, b}, {ACROSS, a, b}};
    for (size_t i = 0; i < ARRAY_SIZE(benches); i++) {
        static const unsigned threads[] = {0, 1, 2, 5};
        for (size_t t = 0; t < ARRAY_SIZE(threads); t++) {
            struct transfer_shape shape = {.chunk = CHUNK, .chunks = 3, .threads = threads[t]};
            run(&benches[i], &shape, 0);
            shape.chunks = 1;
            run(&benches[i], &shape, 0);
        }
        /* Copies that several threads share, cut within rows. */
        run(&benches[i], &(struct transfer_shape){.chunk = 1u << 20, .chunks = 2, .threads = 4}, 0);
        if (benches[i].way != ACROSS)
            run(&benches[i], &(struct transfer_shape){0}, 0);
        run(&benches[i], NULL, 0);
        run(&benches[i], NULL, 1000);
        run(&benches[i], NULL, 40u << 20);
    }
    rig_destroy(a);
    rig_destroy(b);
}

const struct image_case image_cases[] = {
    {CL_MEM_OBJECT_IMAGE1D, {1, 1, 1}, CL_RGBA, CL_UNSIGNED_INT8, 4, 0, 0},
    {CL_MEM_OBJECT_IMAGE1D, {8191, 1, 1}, CL_RGBA, CL_FLOAT, 16, 0, 0},
    {CL_MEM_OBJECT_IMAGE1D_ARRAY, {33, 7, 1}, CL_RGBA, CL_UNSIGNED_INT8, 4, 0, 0},
    {CL_MEM_OBJECT_IMAGE1D_ARRAY, {500, 60, 1}, CL_RGBA, CL_UNSIGNED_INT8, 4, 8, 24},
    {CL_MEM_OBJECT_IMAGE2D, {1, 1, 1}, CL_R, CL_UNSIGNED_INT8, 1, 0, 0},
    {CL_MEM_OBJECT_IMAGE2D, {257, 131, 1}, CL_RGBA, CL_UNSIGNED_INT8, 4, 0, 0},
    {CL_MEM_OBJECT_IMAGE2D, {257, 131, 1}, CL_RGBA, CL_UNSIGNED_INT16, 8, 40, 0},
    {CL_MEM_OBJECT_IMAGE2D, {5000, 3, 1}, CL_RGBA, CL_FLOAT, 16, 16, 0},
    {CL_MEM_OBJECT_IMAGE2D_ARRAY, {64, 64, 9}, CL_RGBA, CL_UNSIGNED_INT8, 4, 0, 0},
    {CL_MEM_OBJECT_IMAGE2D_ARRAY, {127, 200, 3}, CL_RGBA, CL_UNSIGNED_INT8, 4, 12, 1000},
    {CL_MEM_OBJECT_IMAGE3D, {17, 13, 11}, CL_RGBA, CL_UNSIGNED_INT8, 4, 0, 0},
    {CL_MEM_OBJECT_IMAGE3D, {100, 50, 20}, CL_RGBA, CL_UNSIGNED_INT16, 8, 8, 840},
};

void shape_init(struct image_shape *shape, const struct image_case *c)
{
    *shape = (struct image_shape){
        .format = {c->order, c->channel},
        .desc = {.image_type = c->type, .image_width = c->dims[0]},
        .element_size = c->element,
        .row_pitch = c->dims[0] * c->element + c->row_more,
    };
    memcpy(shape->dims, c->dims, sizeof(shape->dims));
    switch (c->type) {
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
        shape->desc.image_array_size = c->dims[1];
        shape->slice_pitch = shape->row_pitch + c->slice_more;
        break;
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
        shape->desc.image_array_size = c->dims[2];
        break;
    case CL_MEM_OBJECT_IMAGE3D:
        shape->desc.image_depth = c->dims[2];
        break;
    default:
        break;
    }
    if (c->type != CL_MEM_OBJECT_IMAGE1D && c->type != CL_MEM_OBJECT_IMAGE1D_ARRAY)
        shape->desc.image_height = c->dims[1];
    if (c->type == CL_MEM_OBJECT_IMAGE2D_ARRAY || c->type == CL_MEM_OBJECT_IMAGE3D)
        shape->slice_pitch = shape->row_pitch * c->dims[1] + c->slice_more;
}

unsigned count_copy_threads(bool *ret_blocked)
{
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    *ret_blocked = true;
    for (struct dirent *entry; (entry = readdir(tasks));) {
        char path[300], line[256];
        bool ours = false;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        while (file && fgets(line, sizeof(line), file)) {
            unsigned long long mask;
            if (strcmp(line, "Name:\treseat-copy\n") == 0)
                ours = true;
            if (ours && sscanf(line, "SigBlk:\t%llx", &mask) == 1)
                /* All but KILL, STOP and those that a fault of the thread itself raises. */
                *ret_blocked &= (mask & 0x7ffbfeff) == 0x3ffbfa27;
        }
        if (file)
            fclose(file);
        count += ours;
    }
    closedir(tasks);
    return count;
}
