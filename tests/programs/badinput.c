/**
 * Hands every entry point handles that are NULL, foreign, freed or of another
 * type, and wrong sizes, and compares each error with the one that the
 * specification names.
 *
 *   badinput [--only null]
 *
 * Drivers themselves crash on most of it; with --only null they get the part
 * that a loader or driver can tell.
 */
#include "badinput.h"

#include <stdio.h>
#include <string.h>

enum { OBJECT_BYTES = 256, UNMAPPED = 0x1000, ODD = 4 };

const char *const how_names[HOW_COUNT] = {"NULL",  "foreign",        "unmapped", "inside an object",
                                          "freed", "of another type"};

static const char source[] = "__kernel void one(__global uint *a, uint k, __local uint *l) {\n"
                             "    a[get_global_id(0)] = k + l[0];\n"
                             "}\n";

void bad_expect(struct bad *b, cl_int got, cl_int want, const char *call)
{
    b->checks++;
    if (got == want)
        return;
    b->wrong++;
    const char *how = b->how < HOW_COUNT ? how_names[b->how] : "size";
    fprintf(stderr, "badinput (%s): %s: got %d, want %d\n", how, call, got, want);
}

void bad_expect_none(struct bad *b, const void *got, cl_int want, const char *call)
{
    if (got) {
        b->checks++;
        b->wrong++;
        fprintf(stderr, "badinput (%d): %s: made an object\n", (int)b->how, call);
        return;
    }
    bad_expect(b, b->err, want, call);
    b->err = CL_SUCCESS;
}

void *bad_handle(const struct bad *b, void *good, void *freed, void *other)
{
    static char foreign[OBJECT_BYTES];

    switch (b->how) {
    case HOW_FOREIGN:
        return foreign;
    case HOW_UNMAPPED:
        return (void *)(uintptr_t)UNMAPPED;
    case HOW_ODD:
        return (char *)good + ODD;
    case HOW_FREED:
        return freed;
    case HOW_OTHER:
        return other;
    default:
        return NULL;
    }
}

static struct objects make(const struct prog *p)
{
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4};
    struct prog of_context = *p;
    struct objects o;
    cl_int err;

    o.context = of_context.context = clCreateContext(NULL, 1, &p->device, NULL, NULL, &err);
    MUST(err);
    o.queue = prog_queue(&of_context, 0);
    o.mem = prog_buffer(o.context, CL_MEM_READ_WRITE, OBJECT_BYTES, NULL);
    o.image = clCreateImage(o.context, CL_MEM_READ_WRITE, &format, &desc, NULL, &err);
    MUST(err);
    o.sampler = clCreateSampler(o.context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &err);
    MUST(err);
    o.program = prog_build(&of_context, source, "");
    const char *text = source;
    o.compiled = clCreateProgramWithSource(o.context, 1, &text, NULL, &err);
    MUST(err);
    MUST(clCompileProgram(o.compiled, 1, &p->device, "", 0, NULL, NULL, NULL, NULL));
    o.kernel = prog_kernel(o.program, "one");
    o.event = clCreateUserEvent(o.context, &err);
    MUST(err);
    return o;
}

static void release(const struct objects *o)
{
    MUST(clReleaseEvent(o->event));
    MUST(clReleaseKernel(o->kernel));
    MUST(clReleaseProgram(o->program));
    MUST(clReleaseProgram(o->compiled));
    MUST(clReleaseSampler(o->sampler));
    MUST(clReleaseMemObject(o->image));
    MUST(clReleaseMemObject(o->mem));
    MUST(clReleaseCommandQueue(o->queue));
    MUST(clReleaseContext(o->context));
}

static void bad_handles(struct bad *b)
{
    bad_platforms(b);
    bad_devices(b);
    bad_contexts(b);
    bad_queues(b);
    bad_mems(b);
    bad_samplers(b);
    bad_programs(b);
    bad_kernels(b);
    bad_events(b);
    bad_commands_queue(b);
    bad_commands_mem(b);
    bad_commands_wait(b);
}

/** The objects that all of this was done beside still work. */
static void still_works(const struct bad *b)
{
    uint32_t word = 1, got;

    MUST(clEnqueueWriteBuffer(b->good.queue, b->good.mem, CL_TRUE, 0, sizeof word, &word, 0, NULL,
                              NULL));
    prog_read(b->good.queue, b->good.mem, 0, sizeof got, &got);
    REQUIRE(got == word);
}

int main(int argc, char **argv)
{
    const char *only = prog_option_text(argc, argv, "--only", "");
    struct bad b = {0};

    prog_open(&b.prog);
    b.good = make(&b.prog);
    b.freed = make(&b.prog);
    release(&b.freed);
    for (b.how = HOW_NULL; b.how < HOW_COUNT; b.how++) {
        if (b.how == HOW_NULL || strcmp(only, "null") != 0)
            bad_handles(&b);
    }
    bad_sizes_queries(&b);
    bad_sizes_objects(&b);
    bad_sizes_programs(&b);
    bad_sizes_commands(&b);
    still_works(&b);
    release(&b.good);
    prog_close(&b.prog);
    printf("badinput: %u checks, %u wrong\n", b.checks, b.wrong);
    return b.wrong ? 1 : 0;
}
