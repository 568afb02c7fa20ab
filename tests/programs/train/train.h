/** Training of a small CNN: tensors and queues, the network, the kernels' source. */
#ifndef TESTS_PROGRAMS_TRAIN_H
#define TESTS_PROGRAMS_TRAIN_H

#include "prog.h"

enum {
    MAX_READERS = 8,
    MAX_INPUTS = 4,
    MAX_OUTPUTS = 2,
    MAX_NUMBERS = 8,
    MAX_BLOCKS = 32,
    CLASSES = 10,
    COLOURS = 3,
};

/** Kernels of train_source, in the order of train_kernel_names. */
enum train_kernel {
    SAMPLE,
    CONVOLVE,
    JOIN,
    RECTIFY,
    POOL,
    COMPARE,
    LOSS,
    RECTIFY_BACK,
    POOL_BACK,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    ADD,
    UPDATE,
    TRAIN_KERNELS
};
extern const char *const train_kernel_names[TRAIN_KERNELS];
extern const char train_source[];

/** What a launch belongs to: each has a queue of its own when there are several. */
enum train_branch { MAIN, SIDE, DATA, TRAIN_BRANCHES };

enum train_queues { QUEUES_SEVERAL, QUEUES_OUT_OF_ORDER, QUEUES_ONE };

/** A launch that used a tensor. */
struct use {
    cl_event event;
    cl_command_queue queue;
};

/** A buffer of numbers, and the launches that the next user has to wait for. */
struct tensor {
    cl_mem mem;
    size_t count;
    struct use writer;
    struct use readers[MAX_READERS];
    unsigned reader_count;
};

struct train {
    struct prog prog;
    enum train_queues mode;
    bool fixed; /* numbers are integers, in units of 1/65536 */
    cl_command_queue queues[TRAIN_BRANCHES];
    bool unflushed[TRAIN_BRANCHES];
    cl_kernel kernels[TRAIN_KERNELS];
    cl_uint batch, parts; /* samples a step; ranges of samples whose gradients are summed apart */
    unsigned long launches;
};

/** Arguments of a kernel: tensors it reads, tensors it writes (or both), numbers. */
struct launch {
    enum train_kernel kernel;
    enum train_branch branch;
    size_t items;
    struct tensor *inputs[MAX_INPUTS];
    struct tensor *outputs[MAX_OUTPUTS];
    cl_uint numbers[MAX_NUMBERS];
    unsigned n_numbers;
};

/** Make the queues and kernels; @t has its options. */
void train_open(struct train *t);
void train_close(struct train *t);

void tensor_init(struct train *t, struct tensor *tensor, size_t count);
void tensor_finish(struct tensor *tensor);

/** Enqueue @launch, after the launches that its tensors depend on. */
void train_launch(struct train *t, const struct launch *launch);

/** Write or read a whole tensor; blocks. */
void tensor_write(struct train *t, struct tensor *tensor, const void *numbers);
void tensor_read(struct train *t, struct tensor *tensor, void *ret_numbers);

/** @value as the 4 bytes that kernels take for a number. */
cl_uint train_number(const struct train *t, double value);
double train_value(const struct train *t, cl_uint number);

/** A convolution with its weights (then a bias for each output), or a dense layer: @k is @in_side.
 */
struct convolution {
    cl_uint in, out, in_side, out_side, k, pad;
    struct tensor weights, speed, partial, result;
};

/** relu(3x3 convolution + 1x1 convolution), then a 2x2 pool or none. */
struct block {
    struct convolution wide, narrow;
    bool pools;
    struct tensor joined, pooled;
    /* The loss's gradients by these, by the sum before the rectifier, and by each one's input. */
    struct tensor joined_back, pooled_back, sum_back, wide_input_back, narrow_input_back;
};

struct net {
    struct train *t;
    cl_uint blocks, side;
    struct tensor images, losses;
    struct block block[MAX_BLOCKS];
    struct convolution hidden, last;
    struct tensor active; /* the hidden layer's result after the rectifier */
    struct tensor active_back, hidden_back, last_back;
    cl_uint rate, momentum;
};

void net_init(struct net *net, struct train *t, cl_uint blocks, cl_uint side, cl_uint channels,
              cl_uint steps);
void net_finish(struct net *net);

/** Set the weights to their first values; the same each time. */
void net_reset(struct net *net);

/** Enqueue a step of training. The loss, summed over the batch, is in losses[@step]. */
void net_step(struct net *net, cl_uint step);

/** Digest of all weights; blocks. */
uint64_t net_digest(struct net *net);

#endif
