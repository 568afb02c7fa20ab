#include "tests/state/move/placement_rig.h"

const char placement_source[] =
    "kernel void blend(global uint *out, global const uint *a, global const uint *b, uint k) {\n"
    "  size_t at = get_global_id(0);\n"
    "  out[at] = out[at] * 3u + a[at] * 5u + b[(at + 1) % get_global_size(0)] * 7u + k; }\n"
    "kernel void part(global uint *out, global const uint *a, global const uint *b, uint k,\n"
    "                 uint from) {\n"
    "  size_t i = get_global_id(0), at = from + i, next = from + (i + 1) % get_global_size(0);\n"
    "  out[at] = out[at] * 3u + a[at] * 5u + b[next] * 7u + k; }\n";

cl_uint model[BUFFERS][ITEMS], words[ITEMS];

uint64_t launches(const struct engine_rig *rig, const char *device)
{
    return emu_shared_calls(rig->emu, device, "clEnqueueNDRangeKernel");
}

void mix_range(unsigned out, unsigned a, unsigned b, cl_uint k, unsigned at, unsigned n)
{
    static cl_uint first[ITEMS], second[ITEMS];
    memcpy(first, model[a] + at, n * sizeof(cl_uint));
    memcpy(second, model[b] + at, n * sizeof(cl_uint));
    for (unsigned i = 0; i < n; i++)
        model[out][at + i] = model[out][at + i] * 3u + first[i] * 5u + second[(i + 1) % n] * 7u + k;
}

void mix(unsigned out, unsigned a, unsigned b, cl_uint k)
{
    mix_range(out, a, b, k, 0, ITEMS);
}

void teach_times(const struct engine_rig *rig, const cl_kernel *kernels, unsigned count,
                 uint64_t home_ms, uint64_t other_ms)
{
    pthread_mutex_lock(&engine_lock);
    for (uint32_t i = 0; i < rig->device_count; i++) {
        struct device *device = rig->devices[i];
        bool home = device_key_equal(&device->key, engine_rig_key(rig, "one"));
        for (unsigned n = 0; n < 8 * count; n++)
            place_learn(((struct kernel *)kernels[n / 8])->pace, device, n % 2 ? HALF : ITEMS,
                        (home ? home_ms : other_ms) * NS_PER_MS);
    }
    pthread_mutex_unlock(&engine_lock);
}
