/**
 * The network: blocks of two convolutions whose sum is rectified, some with a pool, then two dense
 * layers. Of a step's launches only those forward and the gradients by inputs are one chain; the
 * gradients by weights, the updates and the second convolution of each block are beside it.
 */
#include "train.h"

#include <math.h>
#include <stdlib.h>

enum { POOL_EVERY = 3, LEAST_SIDE = 2, HIDDEN = 32 };

static size_t weight_count(const struct convolution *c)
{
    return (size_t)c->out * c->in * c->k * c->k + c->out;
}

static size_t planes(const struct train *t, cl_uint channels, cl_uint side)
{
    return (size_t)t->batch * channels * side * side;
}

static void convolution_init(struct train *t, struct convolution *c)
{
    tensor_init(t, &c->weights, weight_count(c));
    tensor_init(t, &c->speed, weight_count(c));
    tensor_init(t, &c->partial, weight_count(c) * t->parts);
    tensor_init(t, &c->result, planes(t, c->out, c->out_side));
}

static void convolution_finish(struct convolution *c)
{
    tensor_finish(&c->weights);
    tensor_finish(&c->speed);
    tensor_finish(&c->partial);
    tensor_finish(&c->result);
}

static void convolution_reset(struct train *t, struct convolution *c, struct rng *r)
{
    size_t count = weight_count(c), biases = count - c->out;
    cl_uint *numbers = prog_alloc(count * sizeof *numbers);
    double most = sqrt(3.0 / (c->in * c->k * c->k));

    for (size_t i = 0; i < count; i++) {
        double unit = (double)rng_below(r, 1 << 16) / (1 << 15) - 1;
        numbers[i] = train_number(t, i < biases ? unit * most : 0);
    }
    tensor_write(t, &c->weights, numbers);
    for (size_t i = 0; i < count; i++)
        numbers[i] = 0;
    tensor_write(t, &c->speed, numbers);
    free(numbers);
}

/** A launch on the shape of @c; its tensors and items are the caller's. */
static struct launch on_shape(const struct net *net, const struct convolution *c,
                              enum train_kernel kernel, enum train_branch branch)
{
    return (struct launch){
        .kernel = kernel,
        .branch = branch,
        .numbers = {net->t->batch, c->in, c->out, c->in_side, c->out_side, c->k, c->pad},
        .n_numbers = 7,
    };
}

static void convolve(struct net *net, struct convolution *c, struct tensor *images,
                     enum train_branch branch)
{
    struct launch l = on_shape(net, c, CONVOLVE, branch);

    l.items = c->result.count;
    l.inputs[0] = images;
    l.inputs[1] = &c->weights;
    l.outputs[0] = &c->result;
    train_launch(net->t, &l);
}

static void input_gradient(struct net *net, struct convolution *c, struct tensor *result_back,
                           struct tensor *ret_back, enum train_branch branch)
{
    struct launch l = on_shape(net, c, INPUT_GRADIENT, branch);

    l.items = ret_back->count;
    l.inputs[0] = result_back;
    l.inputs[1] = &c->weights;
    l.outputs[0] = ret_back;
    train_launch(net->t, &l);
}

static void learn(struct net *net, struct convolution *c, struct tensor *images,
                  struct tensor *result_back)
{
    struct launch gradient = on_shape(net, c, WEIGHT_GRADIENT, SIDE);
    cl_uint count = (cl_uint)weight_count(c);
    const struct launch update = {
        .kernel = UPDATE,
        .branch = SIDE,
        .items = count,
        .inputs = {&c->partial},
        .outputs = {&c->weights, &c->speed},
        .numbers = {count, net->t->parts, net->rate, net->momentum},
        .n_numbers = 4,
    };

    gradient.items = c->partial.count;
    gradient.inputs[0] = images;
    gradient.inputs[1] = result_back;
    gradient.outputs[0] = &c->partial;
    gradient.numbers[gradient.n_numbers++] = net->t->parts;
    train_launch(net->t, &gradient);
    train_launch(net->t, &update);
}

/** A launch with an item for each number that it writes, and one or two numbers as arguments. */
static void each(struct net *net, enum train_kernel kernel, struct tensor *const inputs[3],
                 struct tensor *output, cl_uint side)
{
    const struct launch l = {
        .kernel = kernel,
        .branch = MAIN,
        .items = output->count,
        .inputs = {inputs[0], inputs[1], inputs[2]},
        .outputs = {output},
        .numbers = {(cl_uint)output->count, side},
        .n_numbers = side ? 2 : 1,
    };

    train_launch(net->t, &l);
}

#define TENSORS(...) ((struct tensor *const[3]){__VA_ARGS__})

static struct tensor *block_output(struct block *b)
{
    return b->pools ? &b->pooled : &b->joined;
}

static struct tensor *block_output_back(struct block *b)
{
    return b->pools ? &b->pooled_back : &b->joined_back;
}

static struct tensor *block_input(struct net *net, cl_uint i)
{
    return i ? block_output(&net->block[i - 1]) : &net->images;
}

static void block_forward(struct net *net, cl_uint i)
{
    struct block *b = &net->block[i];
    struct tensor *input = block_input(net, i);

    convolve(net, &b->narrow, input, SIDE);
    convolve(net, &b->wide, input, MAIN);
    each(net, JOIN, TENSORS(&b->wide.result, &b->narrow.result), &b->joined, 0);
    if (b->pools)
        each(net, POOL, TENSORS(&b->joined), &b->pooled, b->wide.out_side / 2);
}

static void block_back(struct net *net, cl_uint i)
{
    struct block *b = &net->block[i];
    struct tensor *input = block_input(net, i);

    if (b->pools)
        each(net, POOL_BACK, TENSORS(&b->joined, &b->pooled, &b->pooled_back), &b->joined_back,
             b->wide.out_side);
    each(net, RECTIFY_BACK, TENSORS(&b->joined, &b->joined_back), &b->sum_back, 0);
    if (i > 0) {
        input_gradient(net, &b->narrow, &b->sum_back, &b->narrow_input_back, SIDE);
        input_gradient(net, &b->wide, &b->sum_back, &b->wide_input_back, MAIN);
        each(net, ADD, TENSORS(&b->wide_input_back, &b->narrow_input_back),
             block_output_back(&net->block[i - 1]), 0);
    }
    learn(net, &b->wide, input, &b->sum_back);
    learn(net, &b->narrow, input, &b->sum_back);
}

static void loss(struct net *net, cl_uint step)
{
    struct tensor *back = &net->last_back;
    const struct launch compare = {
        .kernel = COMPARE,
        .branch = MAIN,
        .items = back->count,
        .inputs = {&net->last.result},
        .outputs = {back},
        .numbers = {net->t->batch, step},
        .n_numbers = 2,
    };
    const struct launch total = {
        .kernel = LOSS,
        .branch = SIDE,
        .items = 1,
        .inputs = {back},
        .outputs = {&net->losses},
        .numbers = {(cl_uint)back->count, step},
        .n_numbers = 2,
    };

    train_launch(net->t, &compare);
    train_launch(net->t, &total);
}

void net_step(struct net *net, cl_uint step)
{
    const struct launch sample = {
        .kernel = SAMPLE,
        .branch = DATA,
        .items = net->images.count,
        .outputs = {&net->images},
        .numbers = {net->t->batch, net->side, step},
        .n_numbers = 3,
    };
    struct block *top = &net->block[net->blocks - 1];

    train_launch(net->t, &sample);
    for (cl_uint i = 0; i < net->blocks; i++)
        block_forward(net, i);
    convolve(net, &net->hidden, block_output(top), MAIN);
    each(net, RECTIFY, TENSORS(&net->hidden.result), &net->active, 0);
    convolve(net, &net->last, &net->active, MAIN);
    loss(net, step);
    input_gradient(net, &net->last, &net->last_back, &net->active_back, MAIN);
    learn(net, &net->last, &net->active, &net->last_back);
    each(net, RECTIFY_BACK, TENSORS(&net->active, &net->active_back), &net->hidden_back, 0);
    input_gradient(net, &net->hidden, &net->hidden_back, block_output_back(top), MAIN);
    learn(net, &net->hidden, block_output(top), &net->hidden_back);
    for (cl_uint i = net->blocks; i-- > 0;)
        block_back(net, i);
}

static void block_init(struct net *net, struct block *b, cl_uint in, cl_uint out, cl_uint side)
{
    struct train *t = net->t;

    b->wide = (struct convolution){in, out, side, side, .k = 3, .pad = 1};
    b->narrow = (struct convolution){in, out, side, side, .k = 1, .pad = 0};
    convolution_init(t, &b->wide);
    convolution_init(t, &b->narrow);
    tensor_init(t, &b->joined, planes(t, out, side));
    tensor_init(t, &b->joined_back, planes(t, out, side));
    tensor_init(t, &b->sum_back, planes(t, out, side));
    tensor_init(t, &b->wide_input_back, planes(t, in, side));
    tensor_init(t, &b->narrow_input_back, planes(t, in, side));
    if (b->pools) {
        tensor_init(t, &b->pooled, planes(t, out, side / 2));
        tensor_init(t, &b->pooled_back, planes(t, out, side / 2));
    }
}

static void block_finish(struct block *b)
{
    convolution_finish(&b->wide);
    convolution_finish(&b->narrow);
    tensor_finish(&b->joined);
    tensor_finish(&b->joined_back);
    tensor_finish(&b->sum_back);
    tensor_finish(&b->wide_input_back);
    tensor_finish(&b->narrow_input_back);
    if (b->pools) {
        tensor_finish(&b->pooled);
        tensor_finish(&b->pooled_back);
    }
}

void net_init(struct net *net, struct train *t, cl_uint blocks, cl_uint side, cl_uint channels,
              cl_uint steps)
{
    cl_uint in = COLOURS, out = channels, now = side;

    REQUIRE(blocks >= 1 && blocks <= MAX_BLOCKS);
    *net = (struct net){.t = t, .blocks = blocks, .side = side};
    tensor_init(t, &net->images, planes(t, COLOURS, side));
    tensor_init(t, &net->losses, steps);
    for (cl_uint i = 0; i < blocks; i++) {
        struct block *b = &net->block[i];
        b->pools = i % POOL_EVERY == POOL_EVERY - 1 && now % 2 == 0 && now > LEAST_SIDE;
        block_init(net, b, in, out, now);
        in = out;
        if (b->pools) {
            now /= 2;
            out *= 2;
        }
    }
    net->hidden = (struct convolution){in, HIDDEN, now, 1, .k = now, .pad = 0};
    net->last = (struct convolution){HIDDEN, CLASSES, 1, 1, .k = 1, .pad = 0};
    convolution_init(t, &net->hidden);
    convolution_init(t, &net->last);
    tensor_init(t, &net->active, planes(t, HIDDEN, 1));
    tensor_init(t, &net->active_back, planes(t, HIDDEN, 1));
    tensor_init(t, &net->hidden_back, planes(t, HIDDEN, 1));
    tensor_init(t, &net->last_back, planes(t, CLASSES, 1));
}

void net_finish(struct net *net)
{
    for (cl_uint i = 0; i < net->blocks; i++)
        block_finish(&net->block[i]);
    convolution_finish(&net->hidden);
    convolution_finish(&net->last);
    tensor_finish(&net->active);
    tensor_finish(&net->active_back);
    tensor_finish(&net->hidden_back);
    tensor_finish(&net->last_back);
    tensor_finish(&net->images);
    tensor_finish(&net->losses);
}

/** Call @one for every convolution, in one order. */
static void all_convolutions(struct net *net,
                             void (*one)(struct net *, struct convolution *, void *), void *data)
{
    for (cl_uint i = 0; i < net->blocks; i++) {
        one(net, &net->block[i].wide, data);
        one(net, &net->block[i].narrow, data);
    }
    one(net, &net->hidden, data);
    one(net, &net->last, data);
}

static void reset_one(struct net *net, struct convolution *c, void *rng)
{
    convolution_reset(net->t, c, rng);
}

void net_reset(struct net *net)
{
    struct rng r = rng_seed(1);

    all_convolutions(net, reset_one, &r);
}

static void digest_one(struct net *net, struct convolution *c, void *sum)
{
    size_t bytes = c->weights.count * sizeof(cl_uint);
    void *numbers = prog_alloc(bytes);

    tensor_read(net->t, &c->weights, numbers);
    sum_bytes(sum, numbers, bytes);
    free(numbers);
}

uint64_t net_digest(struct net *net)
{
    uint64_t sum = 0;

    all_convolutions(net, digest_one, &sum);
    return sum;
}
