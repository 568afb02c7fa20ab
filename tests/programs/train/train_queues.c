/** Tensors, queues, and launches that wait for what they depend on. */
#include "train.h"

#include <string.h>

enum { GROUP = 64, MAX_WAITS = 32 };

void train_open(struct train *t)
{
    prog_open(&t->prog);
    cl_program program = prog_build(&t->prog, train_source, t->fixed ? "-DFIXED" : "");
    for (int i = 0; i < TRAIN_KERNELS; i++)
        t->kernels[i] = prog_kernel(program, train_kernel_names[i]);
    OK(clReleaseProgram(program));
    if (t->mode == QUEUES_ONE) { /* and no other one, whose commands might run beside them */
        OK(clReleaseCommandQueue(t->prog.queue));
        t->prog.queue = prog_queue(&t->prog, 0);
    }
    for (int i = 0; i < TRAIN_BRANCHES; i++) {
        if (i > 0 && t->mode != QUEUES_SEVERAL) {
            t->queues[i] = t->queues[0];
            OK(clRetainCommandQueue(t->queues[i]));
        } else if (t->mode == QUEUES_OUT_OF_ORDER) {
            t->queues[i] = prog_queue_out_of_order(&t->prog);
        } else if (t->mode == QUEUES_ONE) {
            t->queues[i] = t->prog.queue;
            OK(clRetainCommandQueue(t->queues[i]));
        } else {
            t->queues[i] = prog_queue(&t->prog, 0);
        }
    }
}

void train_close(struct train *t)
{
    for (int i = 0; i < TRAIN_BRANCHES; i++) {
        OK(clFinish(t->queues[i]));
        OK(clReleaseCommandQueue(t->queues[i]));
    }
    for (int i = 0; i < TRAIN_KERNELS; i++)
        OK(clReleaseKernel(t->kernels[i]));
    prog_close(&t->prog);
}

void tensor_init(struct train *t, struct tensor *tensor, size_t count)
{
    *tensor = (struct tensor){.count = count};
    tensor->mem = prog_buffer(t->prog.context, CL_MEM_READ_WRITE, count * sizeof(cl_uint), NULL);
}

static void use_forget(struct use *use)
{
    if (use->event)
        OK(clReleaseEvent(use->event));
    *use = (struct use){NULL};
}

static void readers_forget(struct tensor *tensor)
{
    while (tensor->reader_count)
        use_forget(&tensor->readers[--tensor->reader_count]);
}

void tensor_finish(struct tensor *tensor)
{
    use_forget(&tensor->writer);
    readers_forget(tensor);
    OK(clReleaseMemObject(tensor->mem));
}

/** Events that a launch waits for, each once. */
struct waits {
    struct train *t;
    cl_command_queue queue;
    cl_event list[MAX_WAITS];
    cl_uint count;
};

static void waits_add(struct waits *w, const struct use *use)
{
    /* An in-order queue waits by itself for what it was given before. */
    if (!use->event || (use->queue == w->queue && w->t->mode != QUEUES_OUT_OF_ORDER))
        return;
    for (cl_uint i = 0; i < w->count; i++)
        if (w->list[i] == use->event)
            return;
    for (int i = 0; i < TRAIN_BRANCHES; i++) {
        if (w->t->queues[i] == use->queue && w->t->unflushed[i]) {
            OK(clFlush(use->queue));
            w->t->unflushed[i] = false;
        }
    }
    REQUIRE(w->count < MAX_WAITS);
    w->list[w->count++] = use->event;
}

static void waits_before_write(struct waits *w, const struct tensor *tensor)
{
    waits_add(w, &tensor->writer);
    for (unsigned i = 0; i < tensor->reader_count; i++)
        waits_add(w, &tensor->readers[i]);
}

static struct use use_of(cl_event event, cl_command_queue queue)
{
    OK(clRetainEvent(event));
    return (struct use){event, queue};
}

static void note_written(struct tensor *tensor, cl_event event, cl_command_queue queue)
{
    use_forget(&tensor->writer);
    readers_forget(tensor);
    tensor->writer = use_of(event, queue);
}

static void note_read(struct tensor *tensor, cl_event event, cl_command_queue queue)
{
    REQUIRE(tensor->reader_count < MAX_READERS);
    tensor->readers[tensor->reader_count++] = use_of(event, queue);
}

static cl_uint set_tensors(cl_kernel kernel, cl_uint first, struct tensor *const *tensors, int most)
{
    cl_uint index = first;

    for (int i = 0; i < most && tensors[i]; i++)
        prog_arg(kernel, index++, sizeof(cl_mem), &tensors[i]->mem);
    return index;
}

void train_launch(struct train *t, const struct launch *l)
{
    cl_kernel kernel = t->kernels[l->kernel];
    cl_command_queue queue = t->queues[l->branch];
    struct waits waits = {.t = t, .queue = queue};
    const size_t items = (l->items + GROUP - 1) / GROUP * GROUP, group = GROUP;
    cl_event event;

    cl_uint index = set_tensors(kernel, 0, l->inputs, MAX_INPUTS);
    index = set_tensors(kernel, index, l->outputs, MAX_OUTPUTS);
    for (unsigned i = 0; i < l->n_numbers; i++)
        prog_arg(kernel, index++, sizeof(cl_uint), &l->numbers[i]);
    for (int i = 0; i < MAX_INPUTS && l->inputs[i]; i++)
        waits_add(&waits, &l->inputs[i]->writer);
    for (int i = 0; i < MAX_OUTPUTS && l->outputs[i]; i++)
        waits_before_write(&waits, l->outputs[i]);
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, &group, waits.count,
                              waits.count ? waits.list : NULL, &event));
    t->unflushed[l->branch] = true;
    t->launches++;
    for (int i = 0; i < MAX_INPUTS && l->inputs[i]; i++)
        note_read(l->inputs[i], event, queue);
    for (int i = 0; i < MAX_OUTPUTS && l->outputs[i]; i++)
        note_written(l->outputs[i], event, queue);
    OK(clReleaseEvent(event));
}

void tensor_write(struct train *t, struct tensor *tensor, const void *numbers)
{
    struct waits waits = {.t = t, .queue = t->queues[MAIN]};
    cl_event event;

    waits_before_write(&waits, tensor);
    OK(clEnqueueWriteBuffer(waits.queue, tensor->mem, CL_TRUE, 0, tensor->count * sizeof(cl_uint),
                            numbers, waits.count, waits.count ? waits.list : NULL, &event));
    note_written(tensor, event, waits.queue);
    OK(clReleaseEvent(event));
}

void tensor_read(struct train *t, struct tensor *tensor, void *ret_numbers)
{
    struct waits waits = {.t = t, .queue = t->queues[MAIN]};

    waits_add(&waits, &tensor->writer);
    OK(clEnqueueReadBuffer(waits.queue, tensor->mem, CL_TRUE, 0, tensor->count * sizeof(cl_uint),
                           ret_numbers, waits.count, waits.count ? waits.list : NULL, NULL));
}

cl_uint train_number(const struct train *t, double value)
{
    const cl_int integer = (cl_int)(value * 65536);
    const float real = (float)value;
    cl_uint bits;

    memcpy(&bits, t->fixed ? (const void *)&integer : (const void *)&real, sizeof bits);
    return bits;
}

double train_value(const struct train *t, cl_uint number)
{
    float real;

    if (t->fixed)
        return (cl_int)number / 65536.0;
    memcpy(&real, &number, sizeof real);
    return (double)real;
}
