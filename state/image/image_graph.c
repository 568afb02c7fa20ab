#include "state/image/image_graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "state/base/bytes/text.h"
#include "state/base/clock.h"
#include "state/command/command.h"
#include "state/memory/memory.h"
#include "state/program/kernel.h"
#include "state/program/program.h"
#include "state/program/sampler.h"
#include "state/recipe/container.h"

static uint64_t graph_id_of(const void *object)
{
    return (uintptr_t)object;
}

static int graph_keep(struct image_blob *blob, const void *bytes, size_t size)
{
    if (!bytes || !size)
        return 0;
    blob->bytes = malloc(size);
    if (!blob->bytes)
        return -ENOMEM;
    memcpy(blob->bytes, bytes, size);
    blob->size = size;
    return 0;
}

const char *graph_program_name(void)
{
    const char *name = getenv("RESEAT_NAME");
    bool named = name && *name && text_is_safe(name, strlen(name));
    return named ? name : program_invocation_short_name;
}

int graph_describe_program(struct image_manifest *manifest, const char *reason)
{
    struct image_record *record = image_manifest_add(manifest, IMAGE_ABOUT);
    struct utsname host;
    if (!record)
        return -ENOMEM;
    struct image_about *about = record->about;
    about->created_ms = clock_wall_ms();
    about->pid = (uint64_t)getpid();
    about->program = strdup(graph_program_name());
    about->host = strdup(uname(&host) == 0 ? host.nodename : "");
    about->release = strdup(RESEAT_VERSION);
    about->reason = strdup(reason);
    return about->program && about->host && about->release && about->reason ? 0 : -ENOMEM;
}

static int graph_add_context(struct image_manifest *manifest, struct object *object)
{
    const struct context *context = (const struct context *)object;
    struct image_record *record = image_manifest_add(manifest, IMAGE_CONTEXT);
    if (!record)
        return -ENOMEM;
    record->context->id = graph_id_of(context);
    for (cl_uint i = 0; i < context->vdev_count; i++)
        record->context->vdevs |= UINT64_C(1) << context->vdevs[i]->index;
    return graph_keep(&record->context->properties, context->properties,
                      context->property_count * sizeof(*context->properties));
}

static int graph_add_queue(struct image_manifest *manifest, struct object *object)
{
    const struct queue *queue = (const struct queue *)object;
    struct image_record *record = image_manifest_add(manifest, IMAGE_QUEUE);
    if (!record)
        return -ENOMEM;
    record->queue->id = graph_id_of(queue);
    record->queue->context = graph_id_of(queue->context);
    record->queue->vdev = queue->vdev->index;
    record->queue->properties = queue->properties;
    return graph_keep(&record->queue->list, queue->property_list,
                      queue->property_count * sizeof(*queue->property_list));
}

/* Add the recipe for the first device that the program was built for. */
static int graph_keep_built(struct image_blob *blob, struct program *program)
{
    uint32_t vdevs = program_vdevs(program);
    for (cl_uint vdev = 0; vdev < program->context->vdev_count; vdev++) {
        int error =
            vdevs & (1u << vdev) ? program_container(program, vdev, &blob->bytes, &blob->size) : 0;
        if (error || blob->size)
            return error;
    }
    return 0;
}

static int graph_add_program(struct image_manifest *manifest, struct object *object)
{
    struct program *program = (struct program *)object;
    struct image_record *record = image_manifest_add(manifest, IMAGE_PROGRAM);
    if (!record)
        return -ENOMEM;
    const struct recipe *base = program_base(program);
    record->program->id = graph_id_of(program);
    record->program->context = graph_id_of(program->context);
    record->program->vdevs = program_vdevs(program);
    int error =
        base ? container_write(base, &record->program->base.bytes, &record->program->base.size) : 0;
    return error ? error : graph_keep_built(&record->program->built, program);
}

static int graph_add_argument(struct image_manifest *manifest, const struct kernel *kernel,
                              cl_uint index)
{
    const struct kernel_arg *arg = &kernel->args[index];
    struct image_record *record = image_manifest_add(manifest, IMAGE_ARGUMENT);
    if (!record)
        return -ENOMEM;
    struct image_argument *argument = record->argument;
    argument->kernel = graph_id_of(kernel);
    argument->index = index;
    argument->kind = arg->kind;
    argument->size = arg->size;
    switch ((enum kernel_arg_kind)arg->kind) {
    case ARG_MEMORY:
    case ARG_SAMPLER:
        argument->object = graph_id_of(object_weak_get(arg->object));
        return 0;
    case ARG_SVM:
        argument->object = graph_id_of(arg->value.pointer);
        return 0;
    case ARG_VALUE:
        return graph_keep(&argument->value,
                          arg->size > sizeof(arg->value.small) ? arg->value.big : arg->value.small,
                          arg->size);
    case ARG_UNSET:
    case ARG_LOCAL:
        break;
    }
    return 0;
}

static int graph_add_kernel(struct image_manifest *manifest, struct object *object)
{
    const struct kernel *kernel = (const struct kernel *)object;
    struct image_record *record = image_manifest_add(manifest, IMAGE_KERNEL);
    if (!record)
        return -ENOMEM;
    record->kernel->id = graph_id_of(kernel);
    record->kernel->context = graph_id_of(kernel->context);
    record->kernel->program = graph_id_of(kernel->program);
    record->kernel->arguments = kernel->arg_count;
    record->kernel->name = strdup(kernel->pace->name);
    int error = record->kernel->name ? 0 : -ENOMEM;
    for (cl_uint i = 0; !error && i < kernel->arg_count; i++)
        error = graph_add_argument(manifest, kernel, i);
    return error;
}

static int graph_add_sampler(struct image_manifest *manifest, struct object *object)
{
    const struct sampler *sampler = (const struct sampler *)object;
    struct image_record *record = image_manifest_add(manifest, IMAGE_SAMPLER);
    if (!record)
        return -ENOMEM;
    record->sampler->id = graph_id_of(sampler);
    record->sampler->context = graph_id_of(sampler->context);
    record->sampler->normalized = sampler->normalized != CL_FALSE;
    record->sampler->addressing = sampler->addressing;
    record->sampler->filter = sampler->filter;
    return graph_keep(&record->sampler->properties, sampler->properties,
                      sampler->property_count * sizeof(*sampler->properties));
}

static int graph_add_memory(struct image_manifest *manifest, struct object *object)
{
    const struct memory *memory = (const struct memory *)object;
    const struct image_shape *shape = memory->image;
    struct image_record *record = image_manifest_add(manifest, IMAGE_MEMORY);
    if (!record)
        return -ENOMEM;
    *record->memory = (struct image_memory){.id = graph_id_of(memory),
                                            .context = graph_id_of(memory->context),
                                            .root = graph_id_of(memory->root),
                                            .origin = memory->origin,
                                            .size = memory->size,
                                            .type = memory->type,
                                            .flags = memory->flags,
                                            .user_memory = memory_is_user_memory(memory)};
    if (!shape)
        return 0;
    record->memory->channel_order = shape->format.image_channel_order;
    record->memory->channel_type = shape->format.image_channel_data_type;
    record->memory->width = shape->desc.image_width;
    record->memory->height = shape->desc.image_height;
    record->memory->depth = shape->desc.image_depth;
    record->memory->array_size = shape->desc.image_array_size;
    record->memory->row_pitch = shape->row_pitch;
    record->memory->slice_pitch = shape->slice_pitch;
    return 0;
}

int graph_describe(struct image_manifest *manifest)
{
    static const struct {
        enum object_type type;
        int (*add)(struct image_manifest *manifest, struct object *object);
    } kinds[] = {
        {OBJECT_CONTEXT, graph_add_context}, {OBJECT_QUEUE, graph_add_queue},
        {OBJECT_PROGRAM, graph_add_program}, {OBJECT_KERNEL, graph_add_kernel},
        {OBJECT_SAMPLER, graph_add_sampler}, {OBJECT_MEMORY, graph_add_memory},
    };
    int error = 0;
    for (size_t i = 0; !error && i < ARRAY_SIZE(kinds); i++) {
        uintptr_t cursor = 0;
        struct object *object;
        while (!error && (object = object_next(kinds[i].type, &cursor))) {
            error = kinds[i].add(manifest, object);
            object_unhold(object);
        }
    }
    return error ? error : names_describe(manifest);
}
