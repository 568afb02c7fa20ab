/**
 * Training of a small CNN on generated images: forward, backward, update, some hundred launches a
 * step, with a loss and weights that are the same to the bit each time.
 *
 *   train [--size small|medium|large] [--steps N] [--every N] [--queues several|out-of-order|one]
 *         [--fixed] [--batch N] [--side N] [--channels N] [--blocks N] [--times FILE]
 *
 * It says the loss after every so many steps, and at the end a digest of the weights. Launches
 * of a step that do not depend on each other are on several queues with events, or on one that is
 * out of order with events, or one after the other on one queue.
 *
 * Numbers are floats, whose last bits may depend on the kind of device; with --fixed they
 * are integers, and every device gives the same bits.
 *
 * FILE gets a line for each step: its number, and when it had ended by the monotonic clock, in
 * seconds.
 */
#include "train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 8, AHEAD = 2 };

/* Side times channels, up to which one rate is small enough. */
#define STEADY 128

struct size {
    const char *name;
    long batch, side, channels, blocks;
};
static const struct size sizes[] = {
    {"small", 4, 8, 4, 8},
    {"medium", 16, 16, 8, 8},
    {"large", 128, 32, 64, 8},
};

static const struct size *size_named(const char *name)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(name, sizes[i].name) == 0)
            return &sizes[i];
    prog_fail("--size: not small, medium or large: %s", name);
}

static enum train_queues queues_named(const char *name)
{
    static const char *const names[] = {"several", "out-of-order", "one"};

    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum train_queues)i;
    prog_fail("--queues: not several, out-of-order or one: %s", name);
}

/** Wait until a step's loss is there, and its updates are. */
static void await_step(cl_event *ended, long step, FILE *times)
{
    OK(clWaitForEvents(TRAIN_BRANCHES, ended));
    for (int i = 0; i < TRAIN_BRANCHES; i++)
        OK(clReleaseEvent(ended[i]));
    if (times) {
        fprintf(times, "%ld %.6f\n", step + 1, prog_now());
        fflush(times);
    }
}

static void tell(struct net *net, long step, bool aloud)
{
    cl_uint *losses = prog_alloc(net->losses.count * sizeof *losses);

    tensor_read(net->t, &net->losses, losses);
    if (aloud) {
        printf("step %ld loss %08x (%.5f)\n", step + 1, losses[step],
               train_value(net->t, losses[step]) / net->t->batch);
        fflush(stdout);
    }
    free(losses);
}

/** Train from the first weights on; at most AHEAD steps are enqueued and not done. */
static uint64_t one_pass(struct net *net, long steps, long every, bool aloud, FILE *times)
{
    struct train *t = net->t;
    cl_event ended[AHEAD][TRAIN_BRANCHES];

    net_reset(net);
    for (long step = 0; step < steps; step++) {
        if (step >= AHEAD)
            await_step(ended[step % AHEAD], step - AHEAD, times);
        net_step(net, (cl_uint)step);
        for (int i = 0; i < TRAIN_BRANCHES; i++) {
            OK(clEnqueueMarkerWithWaitList(t->queues[i], 0, NULL, &ended[step % AHEAD][i]));
            OK(clFlush(t->queues[i]));
            t->unflushed[i] = false;
        }
        if (every && (step + 1) % every == 0)
            tell(net, step, aloud);
    }
    for (long step = steps > AHEAD ? steps - AHEAD : 0; step < steps; step++)
        await_step(ended[step % AHEAD], step, times);
    return net_digest(net);
}

static void check_learnt(struct net *net, long steps)
{
    cl_uint *losses = prog_alloc(net->losses.count * sizeof *losses);

    tensor_read(net->t, &net->losses, losses);
    double first = train_value(net->t, losses[0]), last = train_value(net->t, losses[steps - 1]);
    if (!(last < first))
        prog_fail("the loss did not fall: %g at first, %g after %ld steps", first, last, steps);
    free(losses);
}

int main(int argc, char **argv)
{
    const struct size *size = size_named(prog_option_text(argc, argv, "--size", "small"));
    const char *path = prog_option_text(argc, argv, "--times", NULL);
    struct train t = {
        .mode = queues_named(prog_option_text(argc, argv, "--queues", "several")),
        .batch = (cl_uint)prog_option(argc, argv, "--batch", size->batch),
    };
    cl_uint side = (cl_uint)prog_option(argc, argv, "--side", size->side);
    cl_uint channels = (cl_uint)prog_option(argc, argv, "--channels", size->channels);
    cl_uint blocks = (cl_uint)prog_option(argc, argv, "--blocks", size->blocks);
    long steps = prog_option(argc, argv, "--steps", 20),
         every = prog_option(argc, argv, "--every", 5);
    struct net net;

    for (int i = 1; i < argc; i++)
        t.fixed = t.fixed || strcmp(argv[i], "--fixed") == 0;
    REQUIRE(t.batch >= 1 && side >= 4 && side % 4 == 0 && channels >= 1);
    REQUIRE(steps >= 2 && every >= 0);
    t.parts = t.batch < MAX_PARTS ? t.batch : MAX_PARTS;
    FILE *times = path ? fopen(path, "w") : NULL;
    if (path && !times)
        prog_fail("cannot write %s", path);
    train_open(&t);
    net_init(&net, &t, blocks, side, channels, (cl_uint)steps);
    /* A weight's gradient is a sum over the image, and each layer's over the channels before it:
       in a larger network the same rate would let the weights grow without end. */
    double larger = (double)side * channels / STEADY;
    net.rate = train_number(&t, 0.02 / t.batch / (larger > 1 ? larger : 1));
    net.momentum = train_number(&t, 0.75);

    uint64_t sum = one_pass(&net, steps, every, true, times);
    unsigned long launches = t.launches / (unsigned long)steps;
    check_learnt(&net, steps);
    while (prog_again())
        REQUIRE(one_pass(&net, steps, every, false, times) == sum);
    net_finish(&net);
    train_close(&t);
    if (times)
        fclose(times);
    printf("train: %lu launches a step, weights %016lx\n", launches, (unsigned long)sum);
    return 0;
}
