#include "state/object/usage.h"

#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "state/base/mark.h"
#include "state/base/threads/fork.h"
#include "state/opencl/create.h"
#include "state/opencl/image.h"

/* More than OpenCL C has extensions; further names are not noted. */
#define EXTENSIONS_MAX     64
#define EXTENSION_NAME_MAX 128

enum mark {
    MARK_WORK_GROUP,
    MARK_WORK_ITEMS, /* three */
    MARK_DIMENSIONS = MARK_WORK_ITEMS + 3,
    MARK_LOCAL_MEMORY,
    MARK_OBJECT,
    MARK_PARAMETERS,
    MARK_IMAGE2D,                    /* two */
    MARK_IMAGE3D = MARK_IMAGE2D + 2, /* three */
    MARK_IMAGE_BUFFER = MARK_IMAGE3D + 3,
    MARK_IMAGE_ARRAY,
    MARK_READ_IMAGES,
    MARK_WRITE_IMAGES,
    MARK_SAMPLERS,
    MARK_C_VERSION,
    /* Flags. */
    MARK_IMAGES,
    MARK_FP64,
    MARK_FP16,
    MARK_IL,
    MARK_NON_UNIFORM,
    MARK_SUBGROUPS,
    MARK_SUB_BUFFERS,
    MARKS
};

struct marks {
    _Atomic uint64_t most[MARKS];
    _Atomic uint64_t origins; /* the OR of all origins of sub-buffers, in bytes */
    atomic_bool extensions[EXTENSIONS_MAX];
};

static struct marks marks;
static struct marks before; /* saved by usage_renew; used by one mover at a time */

static pthread_mutex_t extension_lock = PTHREAD_MUTEX_INITIALIZER; /* adding */
static const char *extensions[EXTENSIONS_MAX];                     /* ever used; never freed */
static _Atomic size_t extension_count; /* entries below it never change */

static void usage_raise_mark(enum mark mark, uint64_t value)
{
    mark_raise(&marks.most[mark], value);
}

static void usage_raise_flag(enum mark mark, bool value)
{
    if (value && !atomic_load_explicit(&marks.most[mark], memory_order_relaxed))
        atomic_store_explicit(&marks.most[mark], 1, memory_order_relaxed);
}

static uint64_t usage_read_mark(unsigned mark)
{
    return atomic_load(&marks.most[mark]);
}

void usage_note_kernel(const struct usage_kernel *kernel)
{
    usage_raise_mark(MARK_PARAMETERS, kernel->parameter_bytes);
    usage_raise_mark(MARK_READ_IMAGES, kernel->read_images);
    usage_raise_mark(MARK_WRITE_IMAGES, kernel->write_images);
    usage_raise_mark(MARK_SAMPLERS, kernel->samplers);
    usage_raise_flag(MARK_FP64, kernel->fp64);
    usage_raise_flag(MARK_FP16, kernel->fp16);
}

void usage_note_launch(const struct launch_space *space, uint64_t local_memory)
{
    usage_raise_mark(MARK_DIMENSIONS, space->dims);
    usage_raise_mark(MARK_LOCAL_MEMORY, local_memory);
    for (uint32_t i = 0; space->local && i < space->dims; i++)
        usage_raise_mark(MARK_WORK_ITEMS + i, space->local[i]);
    usage_raise_mark(MARK_WORK_GROUP, space->items);
    usage_raise_flag(MARK_NON_UNIFORM, space->uneven);
}

static void usage_note_extension(const char *name)
{
    pthread_mutex_lock(&extension_lock);
    size_t count = atomic_load_explicit(&extension_count, memory_order_relaxed);
    size_t i = 0;
    while (i < count && strcmp(extensions[i], name) != 0)
        i++;
    if (i == count && count < EXTENSIONS_MAX && (extensions[i] = strdup(name)))
        atomic_store_explicit(&extension_count, count + 1, memory_order_release);
    if (i < EXTENSIONS_MAX && extensions[i])
        atomic_store(&marks.extensions[i], true);
    pthread_mutex_unlock(&extension_lock);
}

/* Position of a scan over source text. */
struct scan {
    const char *at, *end;
    unsigned conditionals; /* open #if directives */
    bool comment;          /* inside a block comment */
};

/* One line without comments, cut at @size; continued lines are not joined. */
static bool usage_scan_line(struct scan *scan, char *ret_line, size_t size)
{
    size_t length = 0;
    if (scan->at == scan->end)
        return false;
    bool line_comment = false;
    while (scan->at < scan->end && *scan->at != '\n') {
        char c = *scan->at++;
        char next = scan->at < scan->end ? *scan->at : '\0';
        if (scan->comment) {
            if (c == '*' && next == '/') {
                scan->comment = false;
                scan->at++;
            }
            continue;
        }
        if (!line_comment && c == '/' && next == '*') {
            scan->comment = true;
            scan->at++;
            continue;
        }
        line_comment = line_comment || (c == '/' && next == '/');
        if (!line_comment && length + 1 < size)
            ret_line[length++] = c;
    }
    if (scan->at < scan->end)
        scan->at++;
    ret_line[length] = '\0';
    return true;
}

static const char *usage_skip_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    while (isspace((unsigned char)*text))
        text++;
    return strncmp(text, word, length) == 0 ? text + length : NULL;
}

/* "#pragma OPENCL EXTENSION name : enable" */
static void usage_note_pragma(const char *directive)
{
    char name[EXTENSION_NAME_MAX], behaviour[16];
    const char *rest = usage_skip_word(directive, "pragma");
    rest = rest ? usage_skip_word(rest, "OPENCL") : NULL;
    rest = rest ? usage_skip_word(rest, "EXTENSION") : NULL;
    if (rest && sscanf(rest, " %127[A-Za-z0-9_] : %15[a-z]", name, behaviour) == 2 &&
        strcmp(behaviour, "enable") == 0 && strcmp(name, "all") != 0)
        usage_note_extension(name);
}

static void usage_note_source(const struct recipe *source)
{
    struct scan scan = {.at = source->bytes, .end = source->bytes + source->size};
    char line[512] = "";
    while (usage_scan_line(&scan, line, sizeof(line))) {
        const char *directive = usage_skip_word(line, "#");
        if (!directive)
            continue;
        if (usage_skip_word(directive, "if"))
            scan.conditionals++;
        else if (usage_skip_word(directive, "endif") && scan.conditionals > 0)
            scan.conditionals--;
        else if (scan.conditionals == 0)
            usage_note_pragma(directive);
    }
}

void usage_note_recipe(const struct recipe *recipe)
{
    if (recipe->kind == RECIPE_SOURCE)
        usage_note_source(recipe);
    cl_version standard = options_standard(recipe->options);
    if (standard != OPTIONS_OTHER_LANGUAGE)
        usage_raise_mark(MARK_C_VERSION, standard);
    usage_raise_flag(MARK_IL, recipe->kind == RECIPE_IL);
    for (uint32_t i = 0; i < recipe->input_count; i++)
        usage_note_recipe(recipe->inputs[i]);
}

void usage_note_image(const struct image_shape *shape)
{
    const cl_image_desc *desc = &shape->desc;
    usage_raise_flag(MARK_IMAGES, true);
    switch (desc->image_type) {
    case CL_MEM_OBJECT_IMAGE3D:
        usage_raise_mark(MARK_IMAGE3D, desc->image_width);
        usage_raise_mark(MARK_IMAGE3D + 1, desc->image_height);
        usage_raise_mark(MARK_IMAGE3D + 2, desc->image_depth);
        break;
    case CL_MEM_OBJECT_IMAGE1D_BUFFER:
        usage_raise_mark(MARK_IMAGE_BUFFER, desc->image_width);
        break;
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
        usage_raise_mark(MARK_IMAGE2D, desc->image_width);
        usage_raise_mark(MARK_IMAGE_ARRAY, desc->image_array_size);
        break;
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
        usage_raise_mark(MARK_IMAGE2D, desc->image_width);
        usage_raise_mark(MARK_IMAGE2D + 1, desc->image_height);
        usage_raise_mark(MARK_IMAGE_ARRAY, desc->image_array_size);
        break;
    case CL_MEM_OBJECT_IMAGE1D:
        usage_raise_mark(MARK_IMAGE2D, desc->image_width);
        break;
    default:
        usage_raise_mark(MARK_IMAGE2D, desc->image_width);
        usage_raise_mark(MARK_IMAGE2D + 1, desc->image_height);
        break;
    }
}

void usage_note_object(uint64_t size)
{
    usage_raise_mark(MARK_OBJECT, size);
}

void usage_note_sub_buffer(uint64_t origin)
{
    usage_raise_flag(MARK_SUB_BUFFERS, true);
    if (origin & ~atomic_load_explicit(&marks.origins, memory_order_relaxed))
        atomic_fetch_or_explicit(&marks.origins, origin, memory_order_relaxed);
}

void usage_note_subgroups(void)
{
    usage_raise_flag(MARK_SUBGROUPS, true);
}

/* The largest power of two, in bits, that divides every origin; computed from the OR of all
 * origins. */
static uint64_t usage_alignment_bits(void)
{
    uint64_t origins = atomic_load(&marks.origins);
    if (!usage_read_mark(MARK_SUB_BUFFERS))
        return 0;
    /* All origins are 0, which fits any alignment. */
    return origins ? (origins & -origins) * 8 : (uint64_t)1 << 62;
}

static size_t usage_used_extensions(const char **ret_names)
{
    size_t all = atomic_load_explicit(&extension_count, memory_order_acquire), count = 0;
    for (size_t i = 0; i < all; i++)
        if (atomic_load(&marks.extensions[i]))
            ret_names[count++] = extensions[i];
    return count;
}

void usage_read(struct plan_use *ret)
{
    static const char *used[EXTENSIONS_MAX];
    *ret = (struct plan_use){
        .work_group_size = usage_read_mark(MARK_WORK_GROUP),
        .work_dimensions = (uint32_t)usage_read_mark(MARK_DIMENSIONS),
        .local_memory = usage_read_mark(MARK_LOCAL_MEMORY),
        .largest_object = usage_read_mark(MARK_OBJECT),
        .parameter_size = usage_read_mark(MARK_PARAMETERS),
        .origin_alignment = usage_alignment_bits(),
        .images = usage_read_mark(MARK_IMAGES),
        .image_buffer = usage_read_mark(MARK_IMAGE_BUFFER),
        .image_array = usage_read_mark(MARK_IMAGE_ARRAY),
        .read_images = (uint32_t)usage_read_mark(MARK_READ_IMAGES),
        .write_images = (uint32_t)usage_read_mark(MARK_WRITE_IMAGES),
        .samplers = (uint32_t)usage_read_mark(MARK_SAMPLERS),
        .fp64 = usage_read_mark(MARK_FP64),
        .fp16 = usage_read_mark(MARK_FP16),
        .il = usage_read_mark(MARK_IL),
        .non_uniform = usage_read_mark(MARK_NON_UNIFORM),
        .subgroups = usage_read_mark(MARK_SUBGROUPS),
        .c_version = (uint32_t)usage_read_mark(MARK_C_VERSION),
    };
    ret->extensions = used;
    ret->extension_count = usage_used_extensions(used);
    for (unsigned i = 0; i < 3; i++) {
        ret->work_item_sizes[i] = usage_read_mark(MARK_WORK_ITEMS + i);
        ret->image3d[i] = usage_read_mark(MARK_IMAGE3D + i);
    }
    for (unsigned i = 0; i < 2; i++)
        ret->image2d[i] = usage_read_mark(MARK_IMAGE2D + i);
}

void usage_renew(void)
{
    for (unsigned i = 0; i < MARKS; i++)
        atomic_store(&before.most[i], atomic_exchange(&marks.most[i], 0));
    atomic_store(&before.origins, atomic_exchange(&marks.origins, 0));
    for (unsigned i = 0; i < EXTENSIONS_MAX; i++)
        atomic_store(&before.extensions[i], atomic_exchange(&marks.extensions[i], false));
}

void usage_restore(void)
{
    for (unsigned i = 0; i < MARKS; i++)
        usage_raise_mark(i, atomic_load(&before.most[i]));
    atomic_fetch_or(&marks.origins, atomic_load(&before.origins));
    for (unsigned i = 0; i < EXTENSIONS_MAX; i++)
        if (atomic_load(&before.extensions[i]))
            atomic_store(&marks.extensions[i], true);
}

FORK_PART = {.rank = FORK_TABLE, .lock = &extension_lock};
