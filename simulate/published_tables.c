#include <math.h>

#include "simulate/published.h"

/* Table 1, of S10 cards and a V100. */
const struct published_cost published_costs[PUBLISHED_OPERATIONS][PUBLISHED_SIZES] = {
    [PUBLISHED_MATMUL] = {{58, 58, 1341, 214, 206, 1720},
                          {65, 65, 3551, 274, 270, 4137},
                          {75, 75, 7932, 302, 300, 7144}},
    [PUBLISHED_CONV] = {{55, 55, 449, 199, 191, 568},
                        {60, 60, 1825, 272, 262, 2344},
                        {63, 63, 4663, 296, 292, 4088}},
    [PUBLISHED_FILTER_GRADIENT] = {{70, 70, 2137, 202, 199, 1314},
                                   {73, 73, 5394, 280, 258, 2238},
                                   {80, 80, 30327, 302, 296, 8309}},
    [PUBLISHED_INPUT_GRADIENT] = {{83, 83, 2227, 210, 206, 874},
                                  {88, 88, 6115, 290, 274, 2912},
                                  {90, 90, 25873, 302, 298, 8060}},
    [PUBLISHED_BIAS_GRADIENT] = {{73, 73, 528, 216, 214, 289},
                                 {78, 78, 1413, 266, 256, 556},
                                 {80, 80, 5905, 300, 292, 1779}},
    [PUBLISHED_MUL] = {{13, 13, 9, 99, 95, 10},
                       {15, 15, 11, 105, 99, 14},
                       {18, 18, 23, 113, 109, 22}},
    [PUBLISHED_TRANSPOSE] = {{13, 13, 6, 83, 81, 6},
                             {13, 13, 80, 93, 89, 9},
                             {15, 15, 12, 97, 95, 10}},
};

#define BOTH                                                                                       \
    {                                                                                              \
        PUBLISHED_MATMUL, PUBLISHED_CONV                                                           \
    }

/* Tables 2 and 3, section 5.1, and Fig 5b. */
const struct published_network published_networks[PUBLISHED_NETWORKS] = {
    {"Alexnet", 256, 8, 22.22, 36.05, BOTH, PUBLISHED_MUL, 17.8, -20, 5666, 6313},
    {"Resnet50", 256, 50, 27.78, 41.84, BOTH, PUBLISHED_MUL, 17.8, -28.3, 904, 1077},
    {"Vgg16", 256, 16, 27.78, 23.33, BOTH, PUBLISHED_MUL, 17.8, NAN, 741, 775},
    {"Inception3", 256, 48, 23.81, 38.75, BOTH, PUBLISHED_TRANSPOSE, 17.8, NAN, 757, 882},
    {"DCGAN", 256, 10, 17.54, 24.31, BOTH, PUBLISHED_TRANSPOSE, 17.8, NAN, 2641, 2928},
    {"BERT-Large",
     10,
     24,
     19.32,
     25.16,
     {PUBLISHED_MATMUL, PUBLISHED_MATMUL},
     PUBLISHED_TRANSPOSE,
     17.1,
     NAN,
     35,
     37},
};

/* Of one GPU with one FPGA the paper says how two GPUs compare with it: 85.1 % more throughput, 124
 * % more power. Two GPUs are taken for twice one. */
const struct published_claim published_claims[PUBLISHED_CONFIGURATIONS] = {
    {1, 1, 100 * (2 / 1.851 - 1), 100 * (2 / 2.24 - 1), 20.9, "from 2 GPUs over 1+1"},
    {1, 2, NAN, NAN, NAN, "not printed"},
    {1, 3, 10.1, -23.3, 44.3, "sec. 5.2"},
    {1, 4, NAN, -14.2, 40.4, "sec. 5.3"},
    {2, 6, 11.2, -24.1, 46.6, "sec. 5.3"},
};

const struct published_assumed published_assumed[PUBLISHED_ASSUMPTIONS] = {
    [PUBLISHED_SIZES_USED] =
        {"sizes", "1 small, 2 medium, 3 both by turns, 7 with large", 3, 7, 1, 7,
         "sizes of operations are not stated; where MatMul and Conv2D are faster on FPGAs"},
    [PUBLISHED_MOVE_KB] =
        {"move", "KB that an operation takes from another", 0, 512, 0, 1e6,
         "not stated. 0: moves are hidden, as the paper says. Its one size is 512 KB, which takes "
         "0.547 ms between FPGA and host and 1.198 ms between GPU and host"},
    [PUBLISHED_FASTER] =
        {"faster", "of Fig 5b", 1, 0, 0, 1,
         "what is left on the GPU runs 17.8 % faster (BERT: 17.1 %) as measured by the paper; here "
         "the gradients, in proportion to what is offloaded"},
    [PUBLISHED_GPU_IDLE] = {"gpu-idle", "W a card", 39, 0, 0, 59,
                            "not stated; 300 W less the 261 W between idle and peak of sec. 3.2"},
    [PUBLISHED_FPGA_IDLE] = {"fpga-idle", "W a card", 0, 19, 0, 100,
                             "not stated; Table 1 has operations at 13 W, so it is not in there"},
    [PUBLISHED_HOST] = {"host", "W", 0, 50, 0, 150, "power of the host is not stated"},
    [PUBLISHED_CARDS] = {"cards", "times Table 1's power of FPGAs", 1, 3, 0.1, 10,
                         "not stated whether it is of all three cards (1) or of each (3)"},
    [PUBLISHED_CONTROL] = {"control", "ms", 10, 100, 1, 10000,
                           "how often the vendor's management sets the clock is not stated"},
    [PUBLISHED_CLOCK_POWER] =
        {"clock-power", "exponent", 3, NAN, 0.1, 10,
         "power above idle by clock is not stated: voltage follows the clock"},
    [PUBLISHED_CLOCK_TIME] = {"clock-time", "exponent", 2.416, 1, 0.1, 10,
                              "from 1530 to 1320 MHz throughput falls by 30 % (sec. 1)"},
    [PUBLISHED_CLOCK_STEP] = {"clock-step", "MHz", 15, NAN, 1, 500,
                              "steps of the clock are not stated"},
    [PUBLISHED_SAMPLE] = {"sample", "ms", 1, NAN, 0.001, 1000,
                          "how often power is sampled is not stated"},
    [PUBLISHED_STEPS] = {"steps", "steps", 40, NAN, 1, 100000, "Fig 9 has 40 iterations"},
};

const char *const published_fixed[] = {
    "Steps: no graph is printed. Each network has as many layers as it is known by, and nine "
    "launches a layer: forward a MatMul or Conv2D and two small ones, one after another; backward "
    "a small one, then the gradients of filter, input (which leads to the layer before) and bias; "
    "an update of filter and of bias. Table 2's share of launches is offloaded: first MatMul and "
    "Conv2D, then filter updates, then the last of forward.",
    "Times: on the GPU in proportion to Table 1, so that what is offloaded has Table 2's share of "
    "the time; as long as Table 3 says for the GPU alone at 230 W. FPGA times and all powers by "
    "Table 1, small operations as Mul or Transpose, MatMulGrad as the gradients of Conv2D.",
    "FPGAs: large operations run on all cards of a GPU at once, at any number of cards with the "
    "same energy. What Table 2 does not offload can run there if Table 1 has it: the paper's rule "
    "leaves it on the GPU, as it is slower.",
    "Devices run one launch at a time. The rule takes what is ready in the order of the program.",
    "A lower clock is set once for all steps, not for each launch.",
    NULL};

const double published_caps[PUBLISHED_CAPS] = {250, 230, 210};

void published_options_init(struct published_options *ret_options)
{
    for (size_t i = 0; i < PUBLISHED_ASSUMPTIONS; i++)
        ret_options->value[i] = published_assumed[i].value;
}
