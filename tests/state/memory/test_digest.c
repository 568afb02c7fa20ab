#include "tests/support/cases.h"
#include <errno.h>

#include "state/base/clock.h"
#include "state/memory/digest.h"

/* The same bytes have the same digest on a device of each kind and on the host's cores, and that is
 * the one that the header says. */

#define K ((size_t)1024)

static struct digest expected(const unsigned char *bytes, size_t size)
{
    const uint64_t *key = digest_key();
    uint32_t words[DIGEST_CHUNK / 4] = {0}, sums[2 * DIGEST_SUMS], folded[4];
    memcpy(words, bytes, size);
    for (size_t t = 0; t < DIGEST_SUMS; t++) {
        unsigned __int128 sum = 0;
        for (size_t pair = 0; pair < (size + 7) / 8; pair++) {
            uint32_t keys[2];
            memcpy(keys, &key[pair + t], sizeof(keys));
            uint64_t a = (words[2 * pair] + (uint64_t)keys[0]) % (UINT64_C(1) << 32);
            uint64_t b = (words[2 * pair + 1] + (uint64_t)keys[1]) % (UINT64_C(1) << 32);
            sum += (unsigned __int128)a * b;
        }
        sums[2 * t] = (uint32_t)sum;
        sums[2 * t + 1] = (uint32_t)(sum >> 32);
    }
    for (size_t i = 0; i < 4; i++) {
        const uint64_t *k = key + DIGEST_KEY_PAIRS + i * (2 * DIGEST_SUMS + 1);
        unsigned __int128 sum = k[0];
        for (size_t j = 0; j < 2 * DIGEST_SUMS; j++)
            sum += (unsigned __int128)k[1 + j] * sums[j];
        folded[i] = (uint32_t)((uint64_t)sum >> 32);
    }
    return (struct digest){
        {folded[0] + ((uint64_t)folded[1] << 32), folded[2] + ((uint64_t)folded[3] << 32)}};
}

static void randomise(unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(rand_r(&seed) >> 3);
}

static const size_t sizes[] = {
    1,           7,      8,          9,          4095,         64 * K - 8,
    64 * K - 1,  64 * K, 64 * K + 1, 64 * K + 8, 128 * K + 13, 65 * 64 * K,
    200 * K + 4,
};

static void check(const char *what, const unsigned char *bytes, size_t size, size_t first,
                  const struct digest *got, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t begin = (first + i) * DIGEST_CHUNK, left = size - begin;
        struct digest right = expected(bytes + begin, left < DIGEST_CHUNK ? left : DIGEST_CHUNK);
        cr_assert(digest_same(&got[i], &right), "%s: chunk %zu of %zu bytes", what, first + i,
                  size);
    }
}

Test(digest, of_host_memory_is_the_one_that_is_described)
{
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        size_t count = digest_chunks(sizes[i]);
        unsigned char *memory = malloc(sizes[i] + 3);
        struct digest *got = calloc(count, sizeof(*got));
        cr_assert(memory && got);
        for (size_t shift = 0; shift < 4; shift += 3) { /* aligned and not */
            randomise(memory + shift, sizes[i], (unsigned)i);
            cr_assert_eq(digest_host((char *)memory + shift, sizes[i], 0, count, NULL, got), 0);
            check("the host", memory + shift, sizes[i], 0, got, count);
        }
        cr_assert_eq(digest_host((char *)memory + 3, sizes[i], count - 1, 1, NULL, got), 0);
        check("the host", memory + 3, sizes[i], count - 1, got, 1);
        free(memory);
        free(got);
    }
}

Test(digest, differs_for_every_bit_and_every_place)
{
    static unsigned char bytes[DIGEST_CHUNK];
    struct digest before, after;
    unsigned seed = 5;
    randomise(bytes, sizeof(bytes), 1);
    cr_assert_eq(digest_host((char *)bytes, sizeof(bytes), 0, 1, NULL, &before), 0);
    for (unsigned i = 0; i < 5000; i++) {
        size_t at = (size_t)rand_r(&seed) % sizeof(bytes);
        unsigned char bit = (unsigned char)(1u << (i % 8));
        bytes[at] ^= bit;
        cr_assert_eq(digest_host((char *)bytes, sizeof(bytes), 0, 1, NULL, &after), 0);
        cr_assert_not(digest_same(&before, &after), "bit %u of byte %zu", i % 8, at);
        bytes[at] ^= bit;
    }
    memset(bytes, 0, sizeof(bytes));
    cr_assert_eq(digest_host((char *)bytes, sizeof(bytes), 0, 1, NULL, &before), 0);
    cr_assert(digest_is_known(&before), "zeroes are something, too");
    for (size_t at = 0; at < sizeof(bytes); at += 1021) {
        bytes[at] = 1;
        cr_assert_eq(digest_host((char *)bytes, sizeof(bytes), 0, 1, NULL, &after), 0);
        cr_assert_not(digest_same(&before, &after), "a one at byte %zu", at);
        before = after;
        bytes[at] = 0;
    }
}

Test(digest, of_what_is_not_known_is_nobodys)
{
    const struct digest none = {{0, 0}};
    cr_assert_not(digest_same(&none, &none));
    cr_assert_not(digest_is_known(&none));
}

Test(digest, is_canceled_and_has_a_deadline)
{
    static char bytes[DIGEST_CHUNK];
    struct digest digest;
    atomic_bool cancel = true;
    struct transfer_limits limits = {.cancel = &cancel};
    cr_assert_eq(digest_host(bytes, sizeof(bytes), 0, 1, &limits, &digest), -ECANCELED);
    limits = (struct transfer_limits){.deadline_ns = 1};
    cr_assert_eq(digest_host(bytes, sizeof(bytes), 0, 1, &limits, &digest), -ETIMEDOUT);
}

/* On device @device alone, in a buffer of each size. */
static void on_device(struct device *device, size_t largest)
{
    struct residence *residence;
    cl_int error = CL_SUCCESS;
    cr_assert_eq(residence_create(NULL, device, &residence, &error), 0, "%s: %d",
                 device->key.device, error);
    cr_assert(digest_device_may(residence));
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        size_t count = digest_chunks(sizes[i]);
        if (sizes[i] > largest)
            continue;
        unsigned char *bytes = malloc(sizes[i]);
        struct digest *got = calloc(count, sizeof(*got));
        cr_assert(bytes && got);
        randomise(bytes, sizes[i], (unsigned)i + 7);
        cl_mem buffer = residence->cl->clCreateBuffer(residence->context, CL_MEM_COPY_HOST_PTR,
                                                      sizes[i], bytes, &error);
        cr_assert_eq(error, CL_SUCCESS);
        cr_assert_eq(digest_device(residence, buffer, sizes[i], 0, count, NULL, got), 0);
        check(device->key.device, bytes, sizes[i], 0, got, count);
        cr_assert_eq(digest_device(residence, buffer, sizes[i], count - 1, 1, NULL, got), 0);
        check(device->key.device, bytes, sizes[i], count - 1, got, 1);
        residence->cl->clReleaseMemObject(buffer);
        free(bytes);
        free(got);
    }
    cr_assert_gt(digest_device_rate(residence), 0);
    residence_unref(residence);
}

static void on_driver(const char *library, size_t largest)
{
    struct device **devices;
    size_t count;
    cr_assert_eq(driver_list_library(library, &devices, &count), 0, "%s", library);
    cr_assert_gt(count, 0);
    for (size_t i = 0; i < count; i++)
        on_device(devices[i], largest);
    free(devices);
}

Test(digest, of_devices_of_pocl_is_the_same, .timeout = 120)
{
    setenv("POCL_DEVICES", "basic pthread", 1);
    on_driver(POCL, SIZE_MAX);
}

Test(digest, of_a_device_of_rusticl_is_the_same, .timeout = 120)
{
    setenv("RUSTICL_ENABLE", "llvmpipe", 1);
    on_driver(RUSTICL, SIZE_MAX);
}

#ifdef OCLGRIND
TestCall(digest, of_a_device_of_oclgrind_is_the_same, on_driver(OCLGRIND, 128 * K + 13),
         .timeout = 120);
#endif

/* One core's sample says little of all of them: what they were seen to do is what counts. */
Test(digest, of_host_memory_is_expected_to_be_as_fast_as_it_was, .timeout = 120)
{
    const size_t size = 256 * K * K;
    struct digest *digests = malloc(digest_chunks(size) * sizeof(*digests));
    char *bytes = calloc(size, 1);
    cr_assert(bytes && digests);
    cr_assert(digest_host_rate() > 0);
    const uint64_t began = clock_now_ns();
    cr_assert(digest_host(bytes, size, 0, digest_chunks(size), NULL, digests) == 0);
    const double seen = (double)size * 1e9 / (double)(clock_now_ns() - began);
    const double first = digest_host_rate();
    cr_assert(first >= seen, "%.0f bytes a second were seen, %.0f are expected", seen, first);
    /* Slower ones had others beside them, or were too short to tell. */
    cr_assert(digest_host(bytes, DIGEST_CHUNK, 0, 1, NULL, digests) == 0);
    cr_assert(digest_host_rate() == first);
    cr_assert(digest_host(bytes, size, 0, digest_chunks(size), NULL, digests) == 0);
    cr_assert(digest_host_rate() >= first);
    free(bytes);
    free(digests);
}
