#include "state/command/command.h"
#include "state/program/kernel.h"
#include "state/program/sampler.h"

const struct object_class *const object_classes[OBJECT_TYPES] = {
    [OBJECT_PLATFORM] = &platform_class, [OBJECT_DEVICE] = &seat_class,
    [OBJECT_CONTEXT] = &context_class,   [OBJECT_QUEUE] = &queue_class,
    [OBJECT_MEMORY] = &memory_class,     [OBJECT_SAMPLER] = &sampler_class,
    [OBJECT_PROGRAM] = &program_class,   [OBJECT_KERNEL] = &kernel_class,
    [OBJECT_EVENT] = &event_class,
};
