#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "emu_entries.h"
#include "tests/emu/object.h"

#define DIMENSIONS_MAX 3
#define TYPE_NAME_MAX  64
#define EVERY_KERNEL   "*"
#define NS_PER_S       1000000000ull
#define NS_PER_US      1000ull

static struct emu_kernel *kernel_of(cl_kernel kernel)
{
    return (struct emu_kernel *)kernel;
}

static enum emu_arg arg_kind(cl_kernel real, cl_uint index)
{
    cl_kernel_arg_address_qualifier address;
    char type[TYPE_NAME_MAX] = "";
    if (emu_driver->clGetKernelArgInfo(real, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER,
                                       sizeof(address), &address, NULL) != CL_SUCCESS)
        return EMU_ARG_UNKNOWN;
    if (address == CL_KERNEL_ARG_ADDRESS_LOCAL)
        return EMU_ARG_LOCAL;
    if (address != CL_KERNEL_ARG_ADDRESS_PRIVATE)
        return EMU_ARG_HANDLE;
    /* Longer names are the program's own structs. */
    emu_driver->clGetKernelArgInfo(real, index, CL_KERNEL_ARG_TYPE_NAME, sizeof(type), type, NULL);
    bool handle = strcmp(type, "sampler_t") == 0 || strncmp(type, "image", strlen("image")) == 0;
    return handle ? EMU_ARG_HANDLE : EMU_ARG_VALUE;
}

void emu_kernel_inspect(struct emu_kernel *kernel)
{
    cl_kernel real = kernel->object.real;
    cl_uint count = 0;
    emu_driver->clGetKernelInfo(real, CL_KERNEL_FUNCTION_NAME, sizeof(kernel->name), kernel->name,
                                NULL);
    emu_driver->clGetKernelInfo(real, CL_KERNEL_NUM_ARGS, sizeof(count), &count, NULL);
    kernel->arg_kinds = calloc(count + 1, sizeof(*kernel->arg_kinds));
    kernel->local_bytes = calloc(count + 1, sizeof(*kernel->local_bytes));
    /* Without these every argument is of unknown kind, which clSetKernelArg can deal with. */
    if (kernel->arg_kinds == NULL || kernel->local_bytes == NULL)
        return;
    for (cl_uint i = 0; i < count; i++)
        kernel->arg_kinds[i] = (unsigned char)arg_kind(real, i);
    kernel->arg_count = count;
}

cl_int emu_do_clCreateKernelsInProgram(struct emu_device *device, cl_program program,
                                       cl_uint num_kernels, cl_kernel *kernels,
                                       cl_uint *num_kernels_ret)
{
    cl_uint count = 0;
    cl_program real = emu_real_of(program);
    cl_int err = emu_driver->clCreateKernelsInProgram(real, 0, NULL, &count);
    if (err == CL_SUCCESS && kernels != NULL && num_kernels < count)
        err = CL_INVALID_VALUE;
    if (err != CL_SUCCESS)
        return err;
    if (num_kernels_ret != NULL)
        *num_kernels_ret = count;
    if (kernels == NULL)
        return CL_SUCCESS;
    struct emu_object **made = calloc(count + 1, sizeof(*made));
    cl_kernel *reals = calloc(count + 1, sizeof(cl_kernel));
    if (made == NULL || reals == NULL)
        err = CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < count && err == CL_SUCCESS; i++) {
        made[i] = emu_object_new(EMU_KERNEL, device, emu_object_of(program));
        if (made[i] == NULL)
            err = CL_OUT_OF_HOST_MEMORY;
    }
    if (err == CL_SUCCESS)
        err = emu_driver->clCreateKernelsInProgram(real, count, reals, NULL);
    for (cl_uint i = 0; made != NULL && i < count && made[i] != NULL; i++) {
        made[i]->real = reals[i];
        cl_kernel handle = emu_object_publish(made[i], &err);
        if (handle != NULL)
            kernels[i] = handle;
    }
    free(reals);
    free(made);
    return err;
}

cl_kernel emu_do_clCloneKernel(struct emu_device *device, cl_kernel source_kernel,
                               cl_int *errcode_ret)
{
    struct emu_kernel *source = kernel_of(source_kernel);
    if (emu_driver->clCloneKernel == NULL) {
        *errcode_ret = CL_INVALID_OPERATION;
        return NULL;
    }
    struct emu_kernel *clone =
        (struct emu_kernel *)emu_object_new(EMU_KERNEL, device, source->object.parent);
    if (clone == NULL) {
        *errcode_ret = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    clone->object.real = emu_driver->clCloneKernel(source->object.real, errcode_ret);
    cl_kernel handle = emu_object_publish(&clone->object, errcode_ret);
    for (cl_uint i = 0; handle != NULL && i < clone->arg_count && i < source->arg_count; i++)
        atomic_store(&clone->local_bytes[i], atomic_load(&source->local_bytes[i]));
    return handle;
}

cl_int emu_do_clSetKernelArg(struct emu_device *device, cl_kernel handle, cl_uint arg_index,
                             size_t arg_size, const void *arg_value)
{
    struct emu_kernel *kernel = kernel_of(handle);
    void *argument = NULL;
    (void)device;
    enum emu_arg kind =
        arg_index < kernel->arg_count ? kernel->arg_kinds[arg_index] : EMU_ARG_UNKNOWN;
    bool pointer = arg_size == sizeof(argument) && arg_value != NULL;
    if (pointer && kind != EMU_ARG_VALUE && kind != EMU_ARG_LOCAL) {
        memcpy(&argument, arg_value, sizeof(argument));
        if (argument != NULL && emu_object_is_argument(argument)) {
            argument = emu_real_of(argument);
            arg_value = &argument;
        } else if (argument != NULL && kind == EMU_ARG_HANDLE) {
            return CL_INVALID_MEM_OBJECT;
        }
    }
    cl_int err = emu_driver->clSetKernelArg(kernel->object.real, arg_index, arg_size, arg_value);
    if (err == CL_SUCCESS && kind == EMU_ARG_LOCAL)
        atomic_store(&kernel->local_bytes[arg_index], arg_size);
    return err;
}

cl_int emu_do_clGetKernelInfo(struct emu_device *device, cl_kernel kernel,
                              cl_kernel_info param_name, size_t param_value_size, void *param_value,
                              size_t *param_value_size_ret)
{
    struct emu_object *object = emu_object_of(kernel);
    (void)device;
    switch (param_name) {
    case CL_KERNEL_PROGRAM:
        return emu_info_handle(object->parent, param_value_size, param_value, param_value_size_ret);
    case CL_KERNEL_CONTEXT:
        return emu_info_handle(object->context, param_value_size, param_value,
                               param_value_size_ret);
    case CL_KERNEL_REFERENCE_COUNT:
        return emu_info_refs(object, param_value_size, param_value, param_value_size_ret);
    default:
        return emu_driver->clGetKernelInfo(object->real, param_name, param_value_size, param_value,
                                           param_value_size_ret);
    }
}

/* The largest work-group of @kernel that @device takes. */
static size_t work_group_limit(const struct emu_device *device, const struct emu_kernel *kernel)
{
    const struct emu_config *config = &device->config;
    size_t most = device->max_work_group_size;
    for (size_t i = 0; i < config->kernel_count; i++) {
        const struct emu_kernel_rule *rule = &config->kernels[i];
        bool applies =
            strcmp(rule->kernel, EVERY_KERNEL) == 0 || strcmp(rule->kernel, kernel->name) == 0;
        if (applies && rule->work_group_size < most)
            most = rule->work_group_size;
    }
    return most;
}

cl_int emu_do_clGetKernelArgInfo(struct emu_device *device, cl_kernel kernel, cl_uint arg_indx,
                                 cl_kernel_arg_info param_name, size_t param_value_size,
                                 void *param_value, size_t *param_value_size_ret)
{
    const struct emu_program *program =
        (const struct emu_program *)(const void *)kernel_of(kernel)->object.parent;
    if (device->config.arg_info_fails && !atomic_load(&program->asks))
        return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
    return emu_driver->clGetKernelArgInfo(emu_real_of(kernel), arg_indx, param_name,
                                          param_value_size, param_value, param_value_size_ret);
}

cl_int emu_do_clGetKernelWorkGroupInfo(struct emu_device *reached, cl_kernel kernel,
                                       cl_device_id device, cl_kernel_work_group_info param_name,
                                       size_t param_value_size, void *param_value,
                                       size_t *param_value_size_ret)
{
    struct emu_device *on = device != NULL ? emu_device_of(device) : reached;
    void *real = emu_real_of(kernel);
    size_t size = 0;
    if (param_name != CL_KERNEL_WORK_GROUP_SIZE)
        return emu_driver->clGetKernelWorkGroupInfo(
            real, on->object.real, param_name, param_value_size, param_value, param_value_size_ret);
    cl_int err = emu_driver->clGetKernelWorkGroupInfo(real, on->object.real, param_name,
                                                      sizeof(size), &size, NULL);
    if (err != CL_SUCCESS)
        return err;
    size_t limit = work_group_limit(on, kernel_of(kernel));
    if (size > limit)
        size = limit;
    return emu_info(&size, sizeof(size), param_value_size, param_value, param_value_size_ret);
}

/* Local memory that a launch takes: the kernel's own, and its arguments'. */
static uint64_t local_bytes(const struct emu_device *device, const struct emu_kernel *kernel)
{
    cl_ulong own = 0;
    uint64_t arguments = 0;
    emu_driver->clGetKernelWorkGroupInfo(kernel->object.real, device->object.real,
                                         CL_KERNEL_LOCAL_MEM_SIZE, sizeof(own), &own, NULL);
    for (cl_uint i = 0; i < kernel->arg_count; i++)
        arguments += atomic_load(&kernel->local_bytes[i]);
    /* Drivers differ in whether their figure has the arguments in it. */
    return own >= arguments ? own : own + arguments;
}

static size_t largest_divisor(size_t of, size_t most)
{
    size_t divisor = most < of ? most : of;
    while (divisor > 1 && of % divisor != 0)
        divisor--;
    return divisor;
}

/**
 * Check a launch against the device's limits, and choose the work-group that the driver, which
 * has larger limits, would otherwise choose too large.
 *
 * @chosen  DIMENSIONS_MAX sizes. @local then points to it, or stays as it is.
 */
static cl_int launch_check(const struct emu_device *device, const struct emu_kernel *kernel,
                           cl_uint dimensions, const size_t *global, size_t *chosen,
                           const size_t **local)
{
    size_t limit = work_group_limit(device, kernel);
    size_t items = 1, required[DIMENSIONS_MAX] = {0};
    if (dimensions == 0 || dimensions > DIMENSIONS_MAX)
        return CL_INVALID_WORK_DIMENSION;
    if (local_bytes(device, kernel) > device->local_memory ||
        atomic_load(&device->shared->bytes) + device->config.launch_memory > device->memory)
        return CL_OUT_OF_RESOURCES;
    if (*local != NULL) {
        for (cl_uint i = 0; i < dimensions; i++) {
            if ((*local)[i] > device->max_work_group_size)
                return CL_INVALID_WORK_ITEM_SIZE;
            items *= (*local)[i];
        }
        return items > limit ? CL_INVALID_WORK_GROUP_SIZE : CL_SUCCESS;
    }
    emu_driver->clGetKernelWorkGroupInfo(kernel->object.real, device->object.real,
                                         CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof(required),
                                         required, NULL);
    if (required[0] != 0)
        return required[0] * required[1] * required[2] > limit ? CL_INVALID_WORK_GROUP_SIZE
                                                               : CL_SUCCESS;
    if (global == NULL || global[0] == 0 ||
        (limit >= device->base_work_group_size && !device->config.greedy))
        return CL_SUCCESS;
    chosen[0] = largest_divisor(global[0], limit);
    for (cl_uint i = 1; i < dimensions; i++)
        chosen[i] = 1;
    *local = chosen;
    return CL_SUCCESS;
}

/* ---- a device that takes its time ---- */

struct emu_gate {
    struct emu_gate *next;
    cl_event event; /* owned */
    uint64_t duration, opens_ns;
};

/* In the order of the launches, each when the one before it was over for as long as it takes: where
 * this machine was late to end that, it is late too. One thread a device, which lives on with it.
 */
static void *open_gates(void *data)
{
    struct emu_device *device = data;
    pthread_mutex_lock(&device->cores_lock);
    for (;;) {
        struct emu_gate *gate = device->gates;
        if (gate == NULL) {
            pthread_cond_wait(&device->cores_changed, &device->cores_lock);
            continue;
        }
        uint64_t late = device->cores_over_ns + gate->duration;
        pthread_mutex_unlock(&device->cores_lock);
        emu_sleep_until_ns(late > gate->opens_ns ? late : gate->opens_ns);
        /* Whoever hears that the launch has ended finds that the device draws nothing for it. */
        pthread_mutex_lock(&device->cores_lock);
        device->cores_over_ns = emu_now_ns();
        device->gates = gate->next;
        pthread_mutex_unlock(&device->cores_lock);
        emu_driver->clSetUserEventStatus(gate->event, CL_COMPLETE);
        emu_driver->clReleaseEvent(gate->event);
        free(gate);
        pthread_mutex_lock(&device->cores_lock);
    }
    return NULL;
}

/* Give @gate to the device's thread, which is started with its first. */
static bool gate_add(struct emu_device *device, struct emu_gate *gate)
{
    pthread_mutex_lock(&device->cores_lock);
    pthread_t thread;
    if (!device->gates_open && pthread_create(&thread, NULL, open_gates, device) == 0) {
        (void)pthread_detach(thread);
        device->gates_open = true;
    }
    bool added = device->gates_open;
    if (added) {
        uint64_t now = emu_now_ns();
        struct emu_gate **end = device->gates == NULL ? &device->gates : &device->gates_last->next;
        if (device->gates == NULL) {
            device->busy_since_ns = now;
            emu_meter_busy(device);
        }
        gate->opens_ns =
            (device->cores_free_ns > now ? device->cores_free_ns : now) + gate->duration;
        device->cores_free_ns = gate->opens_ns;
        *end = device->gates_last = gate;
        pthread_cond_signal(&device->cores_changed);
    }
    pthread_mutex_unlock(&device->cores_lock);
    return added;
}

/* Nanoseconds that a launch takes at the device's speed; 0: as long as it does. */
static uint64_t duration_of(const struct emu_device *device, const struct emu_kernel *kernel,
                            cl_uint dimensions, const size_t *global)
{
    const char *paced = device->config.paced;
    double items = 1;
    for (cl_uint i = 0; global != NULL && i < dimensions && i < DIMENSIONS_MAX; i++)
        items *= (double)global[i];
    uint64_t per_s = device->config.items_per_s;
    uint64_t setup = device->config.engines ? device->config.setup_us * NS_PER_US : 0;
    bool is_paced = per_s != 0 && (!paced[0] || emu_config_matches(paced, kernel->name));
    return is_paced ? setup + (uint64_t)(items * NS_PER_S / (double)per_s) : 0;
}

/* What is enqueued next does not begin before the device has had the time for it, and for what it
 * was given before. */
static cl_int take_time(struct emu_device *device, cl_command_queue queue, uint64_t duration)
{
    struct emu_object *object = (struct emu_object *)queue;
    cl_int err;
    if (duration == 0)
        return CL_SUCCESS;
    struct emu_gate *gate = malloc(sizeof(*gate));
    if (gate == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    *gate = (struct emu_gate){.duration = duration};
    gate->event = emu_driver->clCreateUserEvent(object->context->object.real, &err);
    if (err != CL_SUCCESS) {
        free(gate);
        return err;
    }
    err = emu_driver->clEnqueueBarrierWithWaitList(object->real, 1, &gate->event, NULL);
    if (err == CL_SUCCESS && gate_add(device, gate))
        return CL_SUCCESS;
    if (err == CL_SUCCESS) { /* What waits for it must not wait for ever. */
        emu_driver->clSetUserEventStatus(gate->event, CL_COMPLETE);
        err = CL_OUT_OF_HOST_MEMORY;
    }
    emu_driver->clReleaseEvent(gate->event);
    free(gate);
    return err;
}

cl_int emu_do_clEnqueueNDRangeKernel(struct emu_device *device, cl_command_queue command_queue,
                                     cl_kernel kernel, cl_uint work_dim,
                                     const size_t *global_work_offset,
                                     const size_t *global_work_size, const size_t *local_work_size,
                                     cl_uint num_events_in_wait_list,
                                     const cl_event *event_wait_list, cl_event *event)
{
    struct emu_list waits CLEANUP(emu_list_finish);
    struct emu_object *made = NULL;
    cl_event real_event = NULL;
    size_t chosen[DIMENSIONS_MAX];
    cl_int err = emu_list_init(&waits, num_events_in_wait_list, event_wait_list, EMU_EVENT);
    if (err == CL_SUCCESS)
        err = launch_check(device, kernel_of(kernel), work_dim, global_work_size, chosen,
                           &local_work_size);
    uint64_t duration = duration_of(device, kernel_of(kernel), work_dim, global_work_size);
    emu_call_lasts(duration);
    if (err == CL_SUCCESS)
        err = emu_event_prepare(device, event, command_queue, &made);
    if (err != CL_SUCCESS)
        return err;
    emu_sleep_ms(device->config.launch_ms);
    err = device->config.engines
              ? emu_engine_gate(device, EMU_CORES, command_queue, duration, num_events_in_wait_list,
                                (const cl_event *)(const void *)waits.real)
              : take_time(device, command_queue, duration);
    if (err == CL_SUCCESS)
        err = emu_driver->clEnqueueNDRangeKernel(
            emu_real_of(command_queue), emu_real_of(kernel), work_dim, global_work_offset,
            global_work_size, local_work_size, num_events_in_wait_list,
            (const cl_event *)(const void *)waits.real, event != NULL ? &real_event : NULL);
    emu_event_publish(made, real_event, err, event);
    return err;
}

cl_int emu_do_clEnqueueTask(struct emu_device *device, cl_command_queue command_queue,
                            cl_kernel kernel, cl_uint num_events_in_wait_list,
                            const cl_event *event_wait_list, cl_event *event)
{
    const size_t one = 1;
    return emu_do_clEnqueueNDRangeKernel(device, command_queue, kernel, 1, NULL, &one, &one,
                                         num_events_in_wait_list, event_wait_list, event);
}
