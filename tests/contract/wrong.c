#include "tests/contract/wrong.h"

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * wrong FIRST COUNT [SKIPPED [NAME]]: make the random calls of these numbers, and print a line for
 * each.
 *
 * Calls are made in a child, so that a driver may crash or hang in one: the line says so, and
 * another child goes on behind it. SKIPPED is a file with numbers of calls that are not made;
 * with NAME all calls are of those with that part in their names.
 */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define BYTES        4096
#define HANG_SECONDS 60
#define UNTOUCHED    12345
#define UNUSABLE     3
#define FILLER       0xa5

static const char source[] =
    "__kernel void k(__global int *a, __constant int *b, __local int *c, int d, float4 e,\n"
    "                __read_only image2d_t f, __write_only image2d_t g, sampler_t h)\n"
    "{ a[get_global_id(0)] = d + b[0]; }\n"
    "__kernel __attribute__((reqd_work_group_size(4, 1, 1))) void fixed(__global int *a)\n"
    "{ a[get_global_id(0)] = 1; }\n";
static const char part_source[] = "__kernel void p(__global int *a) { a[0] = 1; }\n";
static const char bad_source[] = "__kernel void p(__global int *a) { a[0] = nothing; }\n";

/* What every call can be given. Those of [0] are right nearly everywhere. */
static struct {
    cl_platform_id platform;
    cl_device_id device;
    cl_context contexts[2];
    cl_command_queue queues[3]; /* with times, without, of the other context */
    cl_mem buffers[8], images[6];
    cl_sampler samplers[2];
    cl_program
        programs[4]; /* built; compiled; for each call, one that builds and one that does not */
    cl_kernel kernel, fixed;
    cl_event events[4]; /* complete, ended with an error, of the other context, of a command */
} good;
static unsigned char host[1 << 20], answer[4096];
static bool mapped;
static const char *only; /* Part of the calls' names; or NULL. */
static void *map;

/* ---- random ---- */

static uint64_t wrong_next(struct wrong *w)
{
    uint64_t z = (w->random += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static unsigned wrong_below(struct wrong *w, unsigned count)
{
    return (unsigned)(wrong_next(w) % count);
}

/* One argument in eight is odd, so that what is wrong with it is what the call has to name. */
static bool wrong_is_odd(struct wrong *w)
{
    bool odd = wrong_below(w, 8) == 0;
    w->odd += odd;
    return odd;
}

__attribute__((format(printf, 2, 3))) static void wrong_say(struct wrong *w, const char *text, ...)
{
    va_list list;
    va_start(list, text);
    int length = vsnprintf(w->line + w->length, sizeof(w->line) - w->length, text, list);
    va_end(list);
    w->length += length > 0 ? (size_t)length : 0;
    if (w->length >= sizeof(w->line))
        w->length = sizeof(w->line) - 1;
}

static bool wrong_is(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

/* ---- handles ---- */

/* One of @all, the first unless it is odd; NULL too. Other numbers are for test_handles.c: drivers
 * do not tell them from handles. */
static void *wrong_one_of(struct wrong *w, const char *name, void *const *all, unsigned count)
{
    unsigned at = wrong_is_odd(w) ? wrong_below(w, count + 1) : 0;
    wrong_say(w, " %s=#%u", name, at);
    return at < count ? all[at] : NULL;
}
#define PICK(w, name, array) wrong_one_of(w, name, (void *const *)(array), COUNT(array))
/* Functions by the types of what they choose from an array or write to. */
#define CHOOSES(type, array)                                                                       \
    type wrong_##type(struct wrong *w, const char *name)                                           \
    {                                                                                              \
        return PICK(w, name, array);                                                               \
    }
#define LISTS(type, array, count)                                                                  \
    const type *wrong_const_##type##_ptr(struct wrong *w, const char *name)                        \
    {                                                                                              \
        return wrong_list(w, name, (void *const *)(array), count);                                 \
    }
#define WRITES(type, to)                                                                           \
    type *wrong_##type##_ptr(struct wrong *w, const char *name)                                    \
    {                                                                                              \
        return wrong_out(w, name, to);                                                             \
    }

CHOOSES(cl_platform_id, (cl_platform_id[]){good.platform})
CHOOSES(cl_device_id, (cl_device_id[]){good.device})
CHOOSES(cl_context, good.contexts)
CHOOSES(cl_command_queue, good.queues)
CHOOSES(cl_sampler, good.samplers)
cl_kernel wrong_cl_kernel(struct wrong *w, const char *name)
{
    if (wrong_is(w->call, "NDRange") || wrong_is(w->call, "Task"))
        return wrong_one_of(w, name, (void *const *)&good.fixed, 1);
    return wrong_one_of(w, name, (void *const *)&good.kernel, 1);
}
cl_event wrong_cl_event(struct wrong *w, const char *name)
{
    if (wrong_is(w->call, "UserEventStatus")) {
        w->event = clCreateUserEvent(good.contexts[0], NULL);
        return wrong_one_of(w, name, (void *const *)&w->event, 1);
    }
    if (wrong_is(w->call, "Profiling"))
        return wrong_one_of(w, name, (void *const *)&good.events[3], 1);
    return PICK(w, name, good.events);
}
cl_program wrong_cl_program(struct wrong *w, const char *name)
{
    if (wrong_is(w->call, "clBuild") || wrong_is(w->call, "clCompile"))
        return wrong_one_of(w, name, (void *const *)(good.programs + 2), 2);
    return PICK(w, name, good.programs);
}
cl_mem wrong_cl_mem(struct wrong *w, const char *name)
{
    cl_mem all[COUNT(good.buffers) + COUNT(good.images)];
    bool image = wrong_is(name, "image") || wrong_is(w->call, "GetImageInfo");
    size_t first = image ? COUNT(good.images) : COUNT(good.buffers);
    memcpy(all, image ? good.images : good.buffers, first * sizeof(cl_mem));
    memcpy(all + first, image ? good.buffers : good.images, (COUNT(all) - first) * sizeof(cl_mem));
    return PICK(w, name, all);
}

/* A list of @count handles, or of one more than there are. */
static const void *wrong_list(struct wrong *w, const char *name, void *const *all, unsigned count)
{
    static void *lists[4][4];
    static unsigned next;
    void **list = lists[next++ % COUNT(lists)];
    bool given = w->count != 0;
    if (wrong_is_odd(w))
        given = wrong_below(w, 4) != 0 ? given : !given;
    for (unsigned i = 0; i < COUNT(lists[0]); i++) {
        unsigned at = given && wrong_below(w, 32) == 0 ? wrong_below(w, count + 1) : 0;
        w->odd += at != 0 && i < w->count;
        list[i] = at < count ? all[at] : NULL;
        if (given && i < w->count)
            wrong_say(w, " %s[%u]=#%u", name, i, at);
    }
    if (!given)
        wrong_say(w, " %s=NULL", name);
    return given ? list : NULL;
}

LISTS(cl_event, good.events, COUNT(good.events))
LISTS(cl_mem, good.buffers, COUNT(good.buffers))
LISTS(cl_program, good.programs + 1, 3)
LISTS(cl_device_id, &good.device, 1)

/* ---- numbers ---- */

static uint64_t wrong_value(struct wrong *w, const char *name, uint64_t usual, const uint64_t *odd,
                            unsigned count)
{
    uint64_t value = wrong_is_odd(w) ? odd[wrong_below(w, count)] : usual;
    wrong_say(w, " %s=%#llx", name, (unsigned long long)value);
    return value;
}

uint64_t wrong_range(struct wrong *w, const char *name, uint64_t first, unsigned count)
{
    uint64_t value = first + wrong_below(w, count);
    if (wrong_is_odd(w)) {
        const uint64_t odd[] = {first - 1, first + count, first + wrong_below(w, 2 * count), 0,
                                UINT32_MAX};
        value = odd[wrong_below(w, COUNT(odd))];
    }
    wrong_say(w, " %s=%#llx", name, (unsigned long long)value);
    return value;
}

cl_mem_flags wrong_cl_mem_flags(struct wrong *w, const char *name)
{
    static const cl_mem_flags all[] = {CL_MEM_READ_WRITE,
                                       CL_MEM_WRITE_ONLY,
                                       CL_MEM_READ_ONLY,
                                       CL_MEM_USE_HOST_PTR,
                                       CL_MEM_ALLOC_HOST_PTR,
                                       CL_MEM_COPY_HOST_PTR,
                                       CL_MEM_HOST_READ_ONLY,
                                       CL_MEM_HOST_WRITE_ONLY,
                                       CL_MEM_HOST_NO_ACCESS,
                                       1 << 6,
                                       CL_MEM_KERNEL_READ_AND_WRITE};
    cl_mem_flags flags = wrong_below(w, 2) ? 0 : all[wrong_below(w, 3)];
    if (wrong_is_odd(w))
        for (unsigned i = wrong_below(w, 3); i < 3; i++)
            flags |= all[wrong_below(w, COUNT(all))];
    wrong_say(w, " %s=%#llx", name, (unsigned long long)flags);
    return flags;
}

cl_device_type wrong_cl_device_type(struct wrong *w, const char *name)
{
    static const uint64_t odd[] = {
        0,      CL_DEVICE_TYPE_CPU,    CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_CUSTOM,
        1 << 7, CL_DEVICE_TYPE_DEFAULT};
    return wrong_value(w, name, CL_DEVICE_TYPE_ALL, odd, COUNT(odd));
}

cl_bool wrong_cl_bool(struct wrong *w, const char *name)
{
    static const uint64_t odd[] = {CL_FALSE, 2};
    return (cl_bool)wrong_value(w, name, CL_TRUE, odd, COUNT(odd));
}

static const struct {
    size_t size;
    const void *value;
} arguments[] = {{sizeof(cl_mem), &good.buffers[0]},
                 {sizeof(cl_mem), &good.buffers[0]},
                 {16, NULL},
                 {4, host},
                 {16, host},
                 {sizeof(cl_mem), &good.images[0]},
                 {sizeof(cl_mem), &good.images[0]},
                 {sizeof(cl_sampler), &good.samplers[0]}};

cl_uint wrong_cl_uint(struct wrong *w, const char *name)
{
    static const uint64_t odd[] = {0, 1, 2, 3, 4, UINT32_MAX};
    if (wrong_is(name, "arg_ind")) {
        w->index = wrong_below(w, COUNT(arguments));
        unsigned given = wrong_is_odd(w) ? w->index + (unsigned)COUNT(arguments) : w->index;
        wrong_say(w, " %s=%u", name, given);
        return given;
    }
    if (wrong_is(name, "work_dim"))
        return (cl_uint)wrong_value(w, name, 1, odd, COUNT(odd));
    bool optional =
        wrong_is(name, "wait_list") || wrong_is(name, "headers") ||
        (wrong_is(name, "num_devices") &&
         (wrong_is(w->call, "Build") || wrong_is(w->call, "Compile") || wrong_is(w->call, "Link")));
    bool room = wrong_is(name, "num_entries") || wrong_is(name, "num_kernels");
    w->count = (cl_uint)wrong_value(w, name, room ? 4 : optional ? wrong_below(w, 2) : 1, odd, 4);
    return w->count;
}

cl_int wrong_cl_int(struct wrong *w, const char *name)
{
    static const uint64_t odd[] = {0, 1, 2, 3, 4, UINT32_MAX};
    return (cl_int)wrong_value(w, name, 0, odd, COUNT(odd));
}

size_t wrong_size_t(struct wrong *w, const char *name)
{
    static const uint64_t odd[] = {0,         1,    2,    3,    4,        5,
                                   8,         12,   16,   64,   100,      128,
                                   4080,      4095, 4096, 4097, SIZE_MAX, SIZE_MAX - 15,
                                   1ull << 40};
    size_t usual = wrong_is(name, "arg_size")       ? arguments[w->index].size
                   : wrong_is(name, "value_size")   ? sizeof(answer)
                   : wrong_is(name, "spec_size")    ? 4
                   : wrong_is(name, "pattern_size") ? 4
                   : wrong_is(name, "_pitch")       ? 0
                   : wrong_is(name, "dst_offset")   ? 64
                   : wrong_is(name, "offset")       ? 0
                   : wrong_is(name, "image_")       ? 4
                   : wrong_is(name, "input_value")  ? 0
                                                    : 16;
    return wrong_value(w, name, usual, odd, COUNT(odd));
}

const size_t *wrong_const_size_t_ptr(struct wrong *w, const char *name)
{
    static const size_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 64, 4096, SIZE_MAX};
    static size_t lists[4][3];
    static unsigned next;
    size_t *list = lists[next++ % COUNT(lists)];
    bool lengths = wrong_is(name, "lengths");
    bool region = wrong_is(name, "region") || wrong_is(name, "work_size");
    for (unsigned i = 0; i < 3; i++)
        list[i] = lengths ? sizeof(part_source) - 1 : !region ? 0 : i == 0 ? 4 : 1;
    if (wrong_is(name, "dst_origin"))
        list[0] = wrong_is(w->call, "Image") ? 4 : 64;
    bool null = (lengths && wrong_is(w->call, "Source")) || wrong_is(name, "work_offset");
    if (wrong_is_odd(w)) {
        null = wrong_below(w, 4) == 0;
        list[wrong_below(w, 3)] = sizes[wrong_below(w, COUNT(sizes) - (lengths ? 3 : 0))];
    }
    if (null)
        wrong_say(w, " %s=NULL", name);
    else
        wrong_say(w, " %s={%#zx,%#zx,%#zx}", name, list[0], list[1], list[2]);
    return null ? NULL : list;
}

/* ---- what calls write to ---- */

static void *wrong_out(struct wrong *w, const char *name, void *out)
{
    bool null = wrong_is_odd(w);
    if (null)
        wrong_say(w, " %s=NULL", name);
    return null ? NULL : out;
}

WRITES(size_t, &w->sizes[wrong_is(name, "slice")])
WRITES(cl_uint, &w->counts[0])
WRITES(cl_int, &w->errors[wrong_is(name, "status")])
cl_event *wrong_cl_event_ptr(struct wrong *w, const char *name)
{
    bool given = wrong_below(w, 2) == 0;
    w->odd += !given && !strcmp(w->call, "clEnqueueMarker"); /* Which has to have one. */
    if (!given)
        wrong_say(w, " %s=NULL", name);
    return given ? &w->event : NULL;
}
WRITES(cl_device_id, w->handles)
WRITES(cl_platform_id, w->handles)
WRITES(cl_kernel, w->handles)
WRITES(cl_image_format, (cl_image_format *)(void *)answer)

/* ---- pointers ---- */

static void CL_CALLBACK wrong_ignore(void *first, ...)
{
    (void)first;
}

void *wrong_callback(struct wrong *w, const char *name)
{
    bool given = wrong_is(w->call, "EventCallback");
    if (wrong_is_odd(w))
        given = false;
    wrong_say(w, given ? " %s=f" : " %s=NULL", name);
    return given ? (void *)wrong_ignore : NULL;
}

void *wrong_void_ptr(struct wrong *w, const char *name)
{
    if (wrong_is(name, "user_data") || wrong_is(name, "host_ptr")) {
        bool given = wrong_is_odd(w);
        wrong_say(w, given ? " %s=host" : " %s=NULL", name);
        return given ? host : NULL;
    }
    if (wrong_is(name, "mapped_ptr")) {
        cl_int error;
        map = clEnqueueMapBuffer(good.queues[0], good.buffers[0], CL_TRUE, CL_MAP_READ, 0, 16, 0,
                                 NULL, NULL, &error);
        mapped = map != NULL;
        return wrong_is_odd(w) ? host : map;
    }
    return wrong_out(w, name, wrong_is(name, "param_value") ? answer : host);
}

const void *wrong_const_void_ptr(struct wrong *w, const char *name)
{
    static cl_buffer_region region;
    static const void *value;
    if (wrong_is(name, "create_info")) {
        static const size_t sizes[] = {0, 1, 4, 16, 128, 1024, 2048, 4096, 4097, SIZE_MAX};
        region = (cl_buffer_region){2048 * wrong_below(w, 2), 128};
        if (wrong_is_odd(w))
            region = (cl_buffer_region){sizes[wrong_below(w, COUNT(sizes))],
                                        sizes[wrong_below(w, COUNT(sizes))]};
        wrong_say(w, " region={%#zx,%#zx}", region.origin, region.size);
        return wrong_out(w, name, &region);
    }
    if (!wrong_is(name, "arg_value"))
        return wrong_out(w, name, host);
    value = arguments[w->index].value;
    if (wrong_is_odd(w)) {
        static const cl_mem none;
        const void *const odd[] = {NULL,
                                   &none,
                                   &good.buffers[0],
                                   &good.buffers[1],
                                   &good.buffers[2],
                                   &good.buffers[3],
                                   &good.buffers[7],
                                   &good.images[0],
                                   &good.images[1],
                                   &good.images[2],
                                   &good.images[3],
                                   &good.samplers[0],
                                   &good.samplers[1],
                                   &good.queues[0],
                                   host};
        unsigned at = wrong_below(w, COUNT(odd));
        value = odd[at];
        wrong_say(w, " %s=#%u", name, at);
    }
    return value;
}

const char *wrong_const_char_ptr(struct wrong *w, const char *name)
{
    static const char *const options[] = {
        NULL, "-DX=1",         "-cl-std=CL1.2",   "-nonsense",
        "-D", "-cl-std=CL9.9", "-cl-opt-disable", "-create-library"};
    static const char *const names[] = {NULL, "", "fixed", "K", "k;fixed"};
    bool option = wrong_is(name, "options"), odd = wrong_is_odd(w);
    const char *text = option ? odd ? options[wrong_below(w, COUNT(options))] : ""
                       : odd  ? names[wrong_below(w, COUNT(names))]
                              : "k";
    wrong_say(w, " %s='%s'", name, text ? text : "NULL");
    return text;
}

const char **wrong_const_char_ptr_ptr(struct wrong *w, const char *name)
{
    static const char *list[4];
    bool null = wrong_is(name, "header") && w->count == 0;
    for (unsigned i = 0; i < COUNT(list); i++)
        list[i] = wrong_is(name, "header") ? "h.h" : part_source;
    if (wrong_is_odd(w)) {
        null = wrong_below(w, 2) == 0;
        list[wrong_below(w, 2)] = NULL;
    }
    if (null || !list[0] || !list[1])
        wrong_say(w, null ? " %s=NULL" : " %s={..NULL..}", name);
    return null ? NULL : list;
}

const unsigned char **wrong_const_unsigned_char_ptr_ptr(struct wrong *w, const char *name)
{
    static const unsigned char *list[4];
    for (unsigned i = 0; i < COUNT(list); i++)
        list[i] = (const unsigned char *)part_source;
    if (wrong_is_odd(w))
        list[0] = NULL;
    if (!list[0])
        wrong_say(w, " %s[0]=NULL", name);
    return wrong_out(w, name, list);
}

const cl_image_format *wrong_const_cl_image_format_ptr(struct wrong *w, const char *name)
{
    static cl_image_format format;
    format = (cl_image_format){CL_RGBA, CL_UNSIGNED_INT8};
    if (wrong_is_odd(w)) {
        format.image_channel_order = CL_R - 1 + wrong_below(w, 22);
        if (wrong_below(w, 2) == 0)
            format.image_channel_data_type = CL_SNORM_INT8 - 1 + wrong_below(w, 18);
    }
    wrong_say(w, " format=%#x,%#x", format.image_channel_order, format.image_channel_data_type);
    return wrong_out(w, name, &format);
}

const cl_image_desc *wrong_const_cl_image_desc_ptr(struct wrong *w, const char *name)
{
    static cl_image_desc desc;
    static const size_t sizes[] = {0, 1, 2, 3, 4, 5, 8, 16, 64, 100000, SIZE_MAX};
    static const cl_mem_object_type types[] = {
        CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE3D,       CL_MEM_OBJECT_IMAGE2D_ARRAY,
        CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE1D_BUFFER};
    cl_mem_object_type type = types[wrong_below(w, COUNT(types))];
    desc = (cl_image_desc){.image_type = type, .image_width = 4};
    bool tall = type == CL_MEM_OBJECT_IMAGE2D || type == CL_MEM_OBJECT_IMAGE3D ||
                type == CL_MEM_OBJECT_IMAGE2D_ARRAY;
    desc.image_height = tall ? 4 : 0;
    desc.image_depth = type == CL_MEM_OBJECT_IMAGE3D ? 4 : 0;
    desc.image_array_size =
        type == CL_MEM_OBJECT_IMAGE2D_ARRAY || type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? 4 : 0;
    unsigned of = 0;
    if (type == CL_MEM_OBJECT_IMAGE1D_BUFFER)
        desc.mem_object = good.buffers[0];
    if (wrong_is_odd(w)) {
        size_t size = sizes[wrong_below(w, COUNT(sizes))];
        size_t *const fields[] = {&desc.image_width,     &desc.image_height,
                                  &desc.image_depth,     &desc.image_array_size,
                                  &desc.image_row_pitch, &desc.image_slice_pitch};
        unsigned which = wrong_below(w, COUNT(fields) + 3);
        if (which < COUNT(fields)) {
            *fields[which] = size;
        } else if (which == COUNT(fields)) {
            desc.num_mip_levels = wrong_below(w, 2);
            desc.num_samples = wrong_below(w, 2);
        } else if (which == COUNT(fields) + 1) {
            desc.image_type = (cl_mem_object_type)(CL_MEM_OBJECT_BUFFER + wrong_below(w, 9));
        } else {
            of = 1 + wrong_below(w, COUNT(good.buffers) + 4);
            desc.mem_object = of > COUNT(good.buffers) ? good.images[of - COUNT(good.buffers) - 1]
                                                       : good.buffers[of - 1];
        }
    }
    wrong_say(w, " desc={%#x %zx*%zx*%zx [%zx] %zx,%zx mip %u,%u of #%u}", desc.image_type,
              desc.image_width, desc.image_height, desc.image_depth, desc.image_array_size,
              desc.image_row_pitch, desc.image_slice_pitch, desc.num_mip_levels, desc.num_samples,
              of);
    return wrong_out(w, name, &desc);
}

const void *wrong_properties(struct wrong *w, const char *name, unsigned kind)
{
    static cl_properties list[8];
    const struct {
        cl_properties keys[4], values[6];
    } known[] = {
        {{CL_CONTEXT_PLATFORM, CL_CONTEXT_INTEROP_USER_SYNC, 0x2008, 0x1},
         {(cl_properties)good.platform, 0, 1, 2, 3, (cl_properties)good.device}},
        {{CL_QUEUE_PROPERTIES, CL_QUEUE_SIZE, CL_QUEUE_PRIORITY_KHR, 0x1}, {0, 1, 2, 3, 4, 16}},
        {{CL_SAMPLER_NORMALIZED_COORDS, CL_SAMPLER_ADDRESSING_MODE, CL_SAMPLER_FILTER_MODE, 0x1},
         {CL_FALSE, CL_TRUE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, CL_FILTER_LINEAR,
          CL_ADDRESS_REPEAT}},
        {{0, 0x1, 0x2001, 0}, {0, 1, 2, 3, 4, 5}},
    };
    memset(list, 0, sizeof(list));
    if (!wrong_is_odd(w)) {
        wrong_say(w, " %s=NULL", name);
        return NULL;
    }
    unsigned count = wrong_below(w, 3);
    for (unsigned i = 0; i < count; i++) {
        unsigned key = wrong_below(w, 4), value = wrong_below(w, 6);
        list[2 * i] = known[kind].keys[key];
        list[2 * i + 1] = known[kind].values[value];
        wrong_say(w, " %s[%u]=%#llx:#%u", name, i, (unsigned long long)list[2 * i], value);
    }
    return list;
}

/* ---- answers ---- */

/* What was written, with handles by what they are: they are other numbers elsewhere. */
static void wrong_say_answer(struct wrong *w)
{
    size_t size = sizeof(answer);
    while (size && answer[size - 1] == FILLER)
        size--;
    uint64_t digest = 1469598103934665603u;
    for (size_t i = 0; i + sizeof(void *) <= size; i += sizeof(void *)) {
        void *word;
        memcpy(&word, answer + i, sizeof(word));
        for (unsigned k = 0; k < sizeof(good) / sizeof(void *); k++)
            if (word && word == ((void **)&good)[k]) {
                word = (void *)(uintptr_t)(k + 1);
                memcpy(answer + i, &word, sizeof(word));
            }
    }
    for (size_t i = 0; i < size; i++)
        digest = (digest ^ answer[i]) * 1099511628211u;
    if (size && !wrong_is(w->call, "Profiling") && !wrong_is(w->call, "BuildInfo"))
        wrong_say(w, " wrote %zu:%08x", size, (unsigned)digest);
}

static void wrong_say_outputs(struct wrong *w)
{
    for (unsigned i = 0; i < COUNT(w->errors); i++)
        if (w->errors[i] != UNTOUCHED)
            wrong_say(w, " error%u %d", i, w->errors[i]);
    for (unsigned i = 0; i < COUNT(w->sizes); i++)
        if (w->sizes[i] != UNTOUCHED)
            wrong_say(w, " size%u %zu", i, w->sizes[i]);
    for (unsigned i = 0; i < COUNT(w->counts); i++)
        if (w->counts[i] != UNTOUCHED)
            wrong_say(w, " count%u %u", i, w->counts[i]);
    unsigned handles = 0;
    for (unsigned i = 0; i < COUNT(w->handles); i++)
        handles += w->handles[i] != NULL;
    if (handles)
        wrong_say(w, " handles %u", handles);
    if (w->event && !wrong_is(w->call, "SetUserEvent"))
        wrong_say(w, " event");
    wrong_say_answer(w);
}

void wrong_returned(struct wrong *w, cl_int error)
{
    wrong_say(w, " -> %d", error);
    wrong_say_outputs(w);
}

void wrong_made(struct wrong *w, const void *made)
{
    wrong_say(w, " -> %s", made ? "made" : "NULL");
    wrong_say_outputs(w);
}

/* ---- the run ---- */

static void check(cl_int error, const char *what)
{
    if (error == CL_SUCCESS)
        return;
    fprintf(stderr, "wrong: %s: %d\n", what, error);
    _exit(UNUSABLE);
}
#define CHECK(what)                                                                                \
    do {                                                                                           \
        (what);                                                                                    \
        check(error, #what);                                                                       \
    } while (0)

static cl_program program_of(const char *text)
{
    cl_int error;
    cl_program program;
    CHECK(program = clCreateProgramWithSource(good.contexts[0], 1, &text, NULL, &error));
    return program;
}

static void make_memory(void)
{
    static const cl_mem_flags flags[] = {CL_MEM_READ_WRITE,     CL_MEM_READ_ONLY,
                                         CL_MEM_WRITE_ONLY,     CL_MEM_HOST_NO_ACCESS,
                                         CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_WRITE_ONLY};
    const cl_buffer_region region = {1024, 1024};
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 16, .image_height = 16};
    cl_int error;
    for (unsigned i = 0; i < COUNT(flags); i++)
        CHECK(good.buffers[i] = clCreateBuffer(good.contexts[0], flags[i], BYTES, NULL, &error));
    CHECK(good.buffers[6] =
              clCreateSubBuffer(good.buffers[0], 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error));
    CHECK(good.buffers[7] = clCreateBuffer(good.contexts[1], 0, BYTES, NULL, &error));
    for (unsigned i = 0; i < 3; i++)
        CHECK(good.images[i] =
                  clCreateImage(good.contexts[0], flags[i], &format, &desc, NULL, &error));
    CHECK(good.images[3] = clCreateImage(good.contexts[1], 0, &format, &desc, NULL, &error));
    desc = (cl_image_desc){
        .image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = 8, .image_height = 8, .image_depth = 8};
    CHECK(good.images[4] = clCreateImage(good.contexts[0], 0, &format, &desc, NULL, &error));
    desc = (cl_image_desc){.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER,
                           .image_width = 64,
                           .mem_object = good.buffers[0]};
    CHECK(good.images[5] = clCreateImage(good.contexts[0], 0, &format, &desc, NULL, &error));
}

/* For one call: one that failed may be all that a queue has done. */
static void make_queues(void)
{
    static const cl_command_queue_properties bits[] = {CL_QUEUE_PROFILING_ENABLE, 0, 0};
    cl_int error;
    for (unsigned i = 0; i < COUNT(bits); i++)
        CHECK(good.queues[i] =
                  clCreateCommandQueue(good.contexts[i / 2], good.device, bits[i], &error));
}

static void release_queues(void)
{
    for (unsigned i = 0; i < COUNT(good.queues); i++)
        clReleaseCommandQueue(good.queues[i]);
}

static void make_all(void)
{
    cl_int error;
    CHECK(error = clGetPlatformIDs(1, &good.platform, NULL));
    CHECK(error = clGetDeviceIDs(good.platform, CL_DEVICE_TYPE_ALL, 1, &good.device, NULL));
    for (unsigned i = 0; i < 2; i++)
        CHECK(good.contexts[i] = clCreateContext(NULL, 1, &good.device, NULL, NULL, &error));
    make_memory();
    for (unsigned i = 0; i < 2; i++)
        CHECK(good.samplers[i] = clCreateSampler(good.contexts[i], CL_FALSE, CL_ADDRESS_CLAMP,
                                                 CL_FILTER_NEAREST, &error));
    good.programs[0] = program_of(source);
    CHECK(error = clBuildProgram(good.programs[0], 0, NULL, "-cl-kernel-arg-info", NULL, NULL));
    good.programs[1] = program_of(part_source);
    CHECK(error = clCompileProgram(good.programs[1], 0, NULL, "", 0, NULL, NULL, NULL, NULL));
    for (unsigned i = 0; i < 3; i++)
        CHECK(good.events[i] = clCreateUserEvent(good.contexts[i == 2], &error));
    check(clSetUserEventStatus(good.events[0], CL_COMPLETE), "the event's status");
    check(clSetUserEventStatus(good.events[1], -5), "the event's error");
    check(clSetUserEventStatus(good.events[2], CL_COMPLETE), "the event's status");
    make_queues();
    CHECK(error = clEnqueueWriteBuffer(good.queues[0], good.buffers[0], CL_TRUE, 0, BYTES, host, 0,
                                       NULL, &good.events[3]));
    release_queues();
}

/* What calls change is made again for each, so that none depends on those before it. */
static void try_call(unsigned number)
{
    static struct wrong w;
    cl_int error;
    w = (struct wrong){.random = number};
    for (unsigned i = 0; i < COUNT(w.errors); i++)
        w.errors[i] = UNTOUCHED;
    for (unsigned i = 0; i < COUNT(w.sizes); i++)
        w.sizes[i] = UNTOUCHED;
    for (unsigned i = 0; i < COUNT(w.counts); i++)
        w.counts[i] = UNTOUCHED;
    memset(answer, FILLER, sizeof(answer));
    const struct wrong_call *call;
    do
        call = &wrong_calls[wrong_below(&w, wrong_call_count)];
    while (only && !strstr(call->name, only));
    w.call = call->name;
    make_queues();
    good.programs[2] = program_of(part_source);
    good.programs[3] = program_of(bad_source);
    CHECK(good.kernel = clCreateKernel(good.programs[0], "k", &error));
    CHECK(good.fixed = clCreateKernel(good.programs[0], "fixed", &error));
    CHECK(error = clSetKernelArg(good.fixed, 0, sizeof(cl_mem), &good.buffers[0]));
    call->make(&w);
    if (w.event && wrong_is(w.call, "Enqueue")) {
        cl_int status = UNTOUCHED;
        clWaitForEvents(1, &w.event);
        clGetEventInfo(w.event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL);
        wrong_say(&w, " status %d", status);
    }
    if (w.event)
        clReleaseEvent(w.event);
    if (mapped)
        clEnqueueUnmapMemObject(good.queues[0], good.buffers[0], map, 0, NULL, NULL);
    mapped = false;
    /* What is said of the call only later. */
    for (unsigned i = 0; i < 2; i++)
        wrong_say(&w, " finish %d", clFinish(good.queues[i]));
    printf("%u %u %s%s\n", number, w.odd, w.call, w.line);
    fflush(stdout);
    release_queues();
    clReleaseKernel(good.kernel);
    clReleaseKernel(good.fixed);
    clReleaseProgram(good.programs[2]);
    clReleaseProgram(good.programs[3]);
}

static unsigned read_skipped(const char *path, unsigned *ret_numbers, unsigned most)
{
    FILE *file = fopen(path, "r");
    unsigned count = 0;
    while (file && count < most && fscanf(file, "%u", &ret_numbers[count]) == 1)
        count++;
    if (file)
        fclose(file);
    return count;
}

int main(int argc, char **argv)
{
    static unsigned skipped[100000];
    unsigned first = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 0;
    unsigned end = first + (argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 1000);
    only = argc > 4 ? argv[4] : NULL;
    unsigned count = argc > 3 ? read_skipped(argv[3], skipped, COUNT(skipped)) : 0, next = 0;
    _Atomic unsigned *at =
        mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *at = first;
    while (*at < end) {
        pid_t child = fork();
        if (child == 0) {
            make_all();
            for (; *at < end; ++*at) {
                while (next < count && skipped[next] < *at)
                    next++;
                if (next < count && skipped[next] == *at)
                    continue;
                alarm(HANG_SECONDS);
                try_call(*at);
            }
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == UNUSABLE)
            return UNUSABLE;
        if (*at < end) /* POCL ends the program in calls that it does not have. */
            printf("%u crashed %s\n", (*at)++,
                   WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exit");
        fflush(stdout);
    }
    return 0;
}
