#include "tests/state/command/slices_rig.h"

#include <stdlib.h>
#include <string.h>

#include "interpose/entry/start.h"
#include "state/command/event.h"

/* What an item works can make a launch long; the loop's end is not known to the compiler. */
const char slices_source[] =
    "uint work(uint x, uint rounds)\n"
    "{ for (uint i = 0; i < rounds; i++) x = x * 1664525u + 1013904223u; return x; }\n"
    "kernel void plain(global uint *out, uint rounds, uint w, uint h) {\n"
    "  size_t at = (get_global_id(2) * h + get_global_id(1)) * w + get_global_id(0);\n"
    "  uint x = at ^ get_local_id(0) << 8 ^ get_local_id(1) << 16 ^ get_local_id(2) << 24 ^\n"
    "           get_local_size(0) << 4 ^ get_local_size(1) << 12 ^ get_local_size(2) << 20 ^\n"
    "           get_work_dim() << 28;\n"
    "  out[at] += work(x, rounds); }\n"
    "kernel void waits(global uint *out, uint rounds, uint w, uint h) {\n"
    "  size_t at = get_global_id(0);\n"
    "  while (atomic_or(&out[at], 0) == 77) ;\n"
    "  out[at] = work(at, rounds); }\n";

/* As in the source, by squaring: x -> a * x + c. */
cl_uint slices_work(cl_uint x, cl_uint rounds)
{
    cl_uint a = 1664525u, c = 1013904223u;
    for (; rounds; rounds >>= 1) {
        if (rounds & 1)
            x = a * x + c;
        c = a * c + c;
        a = a * a;
    }
    return x;
}

void scene_begin(struct scene *s, const char *config, const char *slice_ms,
                 cl_command_queue_properties properties, size_t count)
{
    memset(s, 0, sizeof(*s));
    setenv(START_ENV_SLICE, slice_ms, 1);
    if (config)
        engine_rig_open(&s->rig, config);
    else
        engine_rig_open_pocl(&s->rig, "basic pthread");
    engine_program_open(&s->rig, properties, NULL, &s->program);
    s->count = count;
    s->words = calloc(count, sizeof(*s->words));
    s->wanted = calloc(count, sizeof(*s->wanted));
    s->out = engine_buffer(s->program.context, CL_MEM_COPY_HOST_PTR, count * sizeof(*s->words),
                           s->words);
}

void scene_build(struct scene *s, const char *text, const char *options, const char *name)
{
    s->program.program = BUILT(s->program.context, text, options);
    s->kernel = engine_kernel(s->program.program, name);
}

void scene_open(struct scene *s, const char *config, const char *slice_ms, const char *name,
                cl_command_queue_properties properties, size_t count)
{
    scene_begin(s, config, slice_ms, properties, count);
    /* For work-groups that do not divide a launch. */
    scene_build(s, slices_source, "-cl-std=CL2.0", name);
}

void scene_close(struct scene *s)
{
    RELEASE(s->out, s->kernel);
    engine_program_close(&s->program);
    free(s->words);
    free(s->wanted);
}

struct residence *residence_of(const struct scene *s)
{
    struct context *context = (struct context *)s->program.context;
    return context->at[atomic_load(&context->residence_index[0])];
}

void set_args(const struct scene *s, cl_uint rounds, cl_uint w, cl_uint h)
{
    OK(clSetKernelArg(s->kernel, 0, sizeof(cl_mem), &s->out));
    OK(clSetKernelArg(s->kernel, 1, sizeof(rounds), &rounds));
    OK(clSetKernelArg(s->kernel, 2, sizeof(w), &w));
    OK(clSetKernelArg(s->kernel, 3, sizeof(h), &h));
}

cl_event launch(struct scene *s, const struct shape *shape, cl_uint rounds)
{
    cl_event event;
    set_args(s, rounds, (cl_uint)(shape->offset[0] + shape->global[0]),
             (cl_uint)(shape->dims > 1 ? shape->offset[1] + shape->global[1] : 1));
    OK(clEnqueueNDRangeKernel(s->program.queue, s->kernel, shape->dims, shape->offset,
                              shape->global, shape->local[0] ? shape->local : NULL, 0, NULL,
                              &event));
    return event;
}

void add_wanted(struct scene *s, const struct shape *shape, cl_uint rounds)
{
    size_t offset[3] = {0}, global[3] = {1, 1, 1}, local[3] = {1, 1, 1}, id[3];
    for (cl_uint i = 0; i < shape->dims; i++) {
        offset[i] = shape->offset[i];
        global[i] = shape->global[i];
        local[i] = shape->local[i];
    }
    for (id[2] = 0; id[2] < global[2]; id[2]++)
        for (id[1] = 0; id[1] < global[1]; id[1]++)
            for (id[0] = 0; id[0] < global[0]; id[0]++) {
                size_t w = offset[0] + global[0], h = offset[1] + global[1], at;
                cl_uint in[3], of[3];
                at = ((offset[2] + id[2]) * h + offset[1] + id[1]) * w + offset[0] + id[0];
                for (unsigned i = 0; i < 3; i++) {
                    size_t left = global[i] - id[i] / local[i] * local[i];
                    in[i] = (cl_uint)(id[i] % local[i]);
                    of[i] = (cl_uint)(left < local[i] ? left : local[i]);
                }
                s->wanted[at] +=
                    slices_work((cl_uint)at ^ in[0] << 8 ^ in[1] << 16 ^ in[2] << 24 ^ of[0] << 4 ^
                                    of[1] << 12 ^ of[2] << 20 ^ shape->dims << 28,
                                rounds);
            }
}

void check(struct scene *s)
{
    OK(clEnqueueReadBuffer(s->program.queue, s->out, CL_TRUE, 0, s->count * sizeof(*s->words),
                           s->words, 0, NULL, NULL));
    for (size_t i = 0; i < s->count; i++)
        cr_assert_eq(s->words[i], s->wanted[i], "word %zu is %u, expected %u", i, s->words[i],
                     s->wanted[i]);
}

cl_int status_of(cl_event event)
{
    cl_int status;
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    return status;
}

uint64_t launches(const struct scene *s, const char *device)
{
    return emu_shared_calls(s->rig.emu, device, "clEnqueueNDRangeKernel");
}

bool is_cut(cl_event event)
{
    return ((struct event *)event)->parts != NULL;
}

bool launch_through(struct scene *s, const struct shape *shape, cl_uint rounds)
{
    cl_event event = launch(s, shape, rounds);
    OK(clWaitForEvents(1, &event));
    cr_assert_eq(status_of(event), CL_COMPLETE);
    bool cut = is_cut(event);
    OK(clReleaseEvent(event));
    return cut;
}

const struct shape long_shape = {1, {0}, {4096}, {16}};
const struct shape longer_shape = {1, {0}, {4 * 4096}, {16}};

/* False: it has ended. */
static bool is_seen_running(cl_event event)
{
    for (unsigned ms = 0; status_of(event) > CL_RUNNING && ms < 10000; ms++)
        engine_rig_sleep(1);
    return status_of(event) == CL_RUNNING;
}

void await_running(cl_event event)
{
    cr_assert(is_seen_running(event));
}

void outlast(struct scene *s, unsigned times, bool (*meanwhile)(struct scene *s, cl_event event),
             void (*add)(struct scene *s, const struct shape *shape, cl_uint rounds))
{
    struct shape shape = long_shape;
    bool outlasted = false;
    struct move_report report;
    for (shape.global[0] *= times; !outlasted && shape.global[0] <= s->count;
         shape.global[0] *= 2) {
        (void)engine_rig_move(&s->rig, "one", &report); /* it may be there */
        cl_event event = launch(s, &shape, ROUNDS);
        add(s, &shape, ROUNDS);
        /* What was measured on a busy machine may have it go whole, once. */
        if (is_cut(event) && is_seen_running(event))
            outlasted = meanwhile(s, event);
        check(s);
        cr_assert_eq(status_of(event), CL_COMPLETE);
        OK(clReleaseEvent(event));
    }
    cr_assert(outlasted, "it waited for the whole launch");
}
