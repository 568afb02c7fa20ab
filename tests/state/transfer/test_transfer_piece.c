#include "tests/support/cases.h"
#include <sys/mman.h>
#include <unistd.h>

#include "state/base/memory/pages.h"
#include "state/transfer/transfer_priv.h"

Test(transfer_host, prefault_makes_pages_present_and_keeps_their_content)
{
    size_t size = 9u << 20, page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char present[(9u << 20) / 4096];
    memory[5] = 7;
    memory[size - 1] = 9;
    pages_populate(memory + 1, size - 2, 64, NULL); /* whole pages inside only */
    cr_assert_eq(mincore(memory, size, present), 0);
    for (size_t i = 0; i < size / page; i++)
        cr_assert(present[i] & 1, "page %zu", i);
    cr_assert_eq(memory[5], 7);
    cr_assert_eq(memory[size - 1], 9);
    cr_assert_eq(memory[size / 2], 0);
    pages_populate(NULL, 0, 1, NULL);
    munmap(memory, size);
}

/* Random boxes, layers of them and rooms: the pieces cover every byte of the item once, within the
 * room. */
Test(transfer_piece, pieces_cover_an_item_exactly_once)
{
    unsigned state = 1;
    for (int round = 0; round < 2000; round++) {
        size_t element = (size_t)1 << rand_r(&state) % 5;
        struct image_shape shape = {.element_size = element,
                                    .dims = {1 + (size_t)rand_r(&state) % 40,
                                             1 + (size_t)rand_r(&state) % 9,
                                             1 + (size_t)rand_r(&state) % 5},
                                    .desc.image_type = CL_MEM_OBJECT_IMAGE3D};
        shape.row_pitch = shape.dims[0] * element + (size_t)rand_r(&state) % 3 * element;
        shape.slice_pitch = shape.row_pitch * shape.dims[1] + (size_t)rand_r(&state) % 50;
        size_t size = shape.slice_pitch * shape.dims[2];
        char *host = calloc(1, size);
        unsigned char *seen = calloc(1, size);
        size_t layer = shape.dims[2] > 1 ? shape.slice_pitch : shape.row_pitch;
        size_t layers = shape.dims[2] > 1 ? shape.dims[2] : shape.dims[1];
        size_t first = (size_t)rand_r(&state) % layers, begin = first * layer;
        size_t last = first + 1 + (size_t)rand_r(&state) % (layers - first);
        size_t end = last == layers ? size : last * layer;
        struct transfer_item item = {
            .image = &shape, .offset = begin, .size = end - begin, .host = host};
        struct walk walk;
        struct piece piece;
        size_t counted = 0;
        walk_init(&walk, &item);
        while (walk.left) {
            size_t room = (size_t)rand_r(&state) % (1 + size / 2 + element);
            if (!walk_next(&walk, room, &piece)) {
                cr_assert_lt(room, element);
                continue;
            }
            cr_assert_leq(piece.size, room);
            counted += piece.counted;
            size_t offset = piece.origin[2] * shape.slice_pitch +
                            piece.origin[1] * shape.row_pitch + piece.origin[0] * element;
            cr_assert_eq(piece.host, host + offset);
            for (size_t z = 0; z < piece.region[2]; z++)
                for (size_t y = 0; y < piece.region[1]; y++)
                    for (size_t x = 0; x < piece.region[0] * element; x++)
                        seen[offset + z * shape.slice_pitch + y * shape.row_pitch + x]++;
        }
        cr_assert_eq(counted, end - begin);
        for (size_t i = 0; i < size; i++) {
            size_t x = i % shape.slice_pitch % shape.row_pitch;
            bool inside = i >= begin && i < end && x < shape.dims[0] * element &&
                          i % shape.slice_pitch / shape.row_pitch < shape.dims[1];
            cr_assert_eq(seen[i], inside, "byte %zu", i);
        }
        free(seen);
        free(host);
    }
}

static size_t told_row, told_slice;

static cl_int CL_API_CALL take_write_image(cl_command_queue queue, cl_mem image, cl_bool blocking,
                                           const size_t *origin, const size_t *region, size_t row,
                                           size_t slice, const void *ptr, cl_uint waits,
                                           const cl_event *wait_list, cl_event *event)
{
    (void)queue, (void)image, (void)blocking, (void)origin, (void)region;
    (void)ptr, (void)waits, (void)wait_list, (void)event;
    told_row = row;
    told_slice = slice;
    return CL_SUCCESS;
}

/* NVIDIA's driver goes by the slice pitch for the layers of a 1D array, POCL by the row pitch. */
Test(transfer_piece, layers_of_a_1d_array_lie_a_row_apart_where_they_are_packed)
{
    cl_icd_dispatch cl = {.clEnqueueWriteImage = take_write_image};
    struct image_shape shape = {.desc.image_type = CL_MEM_OBJECT_IMAGE1D_ARRAY,
                                .element_size = 4,
                                .dims = {50, 7, 1},
                                .row_pitch = 256,
                                .slice_pitch = 256};
    char memory[50 * 7 * 4], host[256 * 7];
    struct transfer_item item = {.image = &shape, .host = host, .size = sizeof(host)};
    struct walk walk;
    struct piece piece;
    walk_init(&walk, &item);
    cr_assert(walk_next(&walk, SIZE_MAX, &piece));
    cr_assert_eq(piece_write(&piece, &cl, NULL, memory, NULL), CL_SUCCESS);
    cr_assert_eq(told_row, 200);
    cr_assert_eq(told_slice, 200);
    cr_assert_eq(piece_write(&piece, &cl, NULL, NULL, NULL), CL_SUCCESS);
    cr_assert_eq(told_row, 256);
    cr_assert_eq(told_slice, 256);
}
