#include "state/usage.h"

#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/memory.h"

/* More names than all extensions of OpenCL C; the rest is not claimed. */
#define EXTENSIONS_MAX     64
#define EXTENSION_NAME_MAX 128

static struct {
    _Atomic uint64_t work_group_size, work_item_sizes[3], work_dimensions;
    _Atomic uint64_t local_memory, largest_object, parameter_size;
    _Atomic uint64_t origin_alignment; /* the OR of all origins in bytes; 0: none */
    _Atomic uint64_t image2d[2], image3d[3], image_buffer, image_array;
    _Atomic uint64_t read_images, write_images, samplers, c_version;
    atomic_bool images, fp64, fp16, il, non_uniform, subgroups, sub_buffers;
} marks;

static pthread_mutex_t extension_lock = PTHREAD_MUTEX_INITIALIZER; /* adding */
static const char *extensions[EXTENSIONS_MAX];
static _Atomic size_t extension_count; /* those before it never change */

static void raise_mark(_Atomic uint64_t *mark, uint64_t value)
{
    uint64_t old = atomic_load_explicit(mark, memory_order_relaxed);
    while (UNLIKELY(value > old) &&
           !atomic_compare_exchange_weak_explicit(mark, &old, value, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

static void raise_flag(atomic_bool *mark, bool value)
{
    if (value && !atomic_load_explicit(mark, memory_order_relaxed))
        atomic_store_explicit(mark, true, memory_order_relaxed);
}

void usage_note_kernel(const struct usage_kernel *kernel)
{
    raise_mark(&marks.parameter_size, kernel->parameter_bytes);
    raise_mark(&marks.read_images, kernel->read_images);
    raise_mark(&marks.write_images, kernel->write_images);
    raise_mark(&marks.samplers, kernel->samplers);
    raise_flag(&marks.fp64, kernel->fp64);
    raise_flag(&marks.fp16, kernel->fp16);
}

void usage_note_launch(uint32_t dims, const size_t *global, const size_t *local,
                       uint64_t local_memory)
{
    raise_mark(&marks.work_dimensions, dims);
    raise_mark(&marks.local_memory, local_memory);
    if (!local)
        return;
    uint64_t items = 1;
    bool uneven = false;
    for (uint32_t i = 0; i < dims && i < 3; i++) {
        raise_mark(&marks.work_item_sizes[i], local[i]);
        items *= local[i];
        uneven = uneven || (global && local[i] && global[i] % local[i] != 0);
    }
    raise_mark(&marks.work_group_size, items);
    raise_flag(&marks.non_uniform, uneven);
}

static void note_extension(const char *name)
{
    pthread_mutex_lock(&extension_lock);
    size_t count = atomic_load_explicit(&extension_count, memory_order_relaxed);
    size_t i = 0;
    while (i < count && strcmp(extensions[i], name) != 0)
        i++;
    if (i == count && count < EXTENSIONS_MAX && (extensions[i] = strdup(name)))
        atomic_store_explicit(&extension_count, count + 1, memory_order_release);
    pthread_mutex_unlock(&extension_lock);
}

/* Where a walk over source text is. */
struct scan {
    const char *at, *end;
    unsigned conditionals; /* #if... not ended */
    bool comment;          /* inside a block comment */
};

/* One line without comments, cut at @size; continued lines are not joined. */
static bool scan_line(struct scan *scan, char *ret_line, size_t size)
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

static const char *skip_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    while (isspace((unsigned char)*text))
        text++;
    return strncmp(text, word, length) == 0 ? text + length : NULL;
}

/* "#pragma OPENCL EXTENSION name : enable" */
static void note_pragma(const char *directive)
{
    char name[EXTENSION_NAME_MAX], behaviour[16];
    const char *rest = skip_word(directive, "pragma");
    rest = rest ? skip_word(rest, "OPENCL") : NULL;
    rest = rest ? skip_word(rest, "EXTENSION") : NULL;
    if (rest && sscanf(rest, " %127[A-Za-z0-9_] : %15[a-z]", name, behaviour) == 2 &&
        strcmp(behaviour, "enable") == 0 && strcmp(name, "all") != 0)
        note_extension(name);
}

static void note_source(const struct recipe *source)
{
    struct scan scan = {.at = source->bytes, .end = source->bytes + source->size};
    char line[512] = "";
    while (scan_line(&scan, line, sizeof(line))) {
        const char *directive = skip_word(line, "#");
        if (!directive)
            continue;
        if (skip_word(directive, "if"))
            scan.conditionals++;
        else if (skip_word(directive, "endif") && scan.conditionals > 0)
            scan.conditionals--;
        else if (scan.conditionals == 0)
            note_pragma(directive);
    }
}

static void note_options(const char *options)
{
    const char *standard = strstr(options, "-cl-std=CL");
    unsigned major, minor;
    if (standard && sscanf(standard, "-cl-std=CL%u.%u", &major, &minor) == 2 && major < 1024 &&
        minor < 1024)
        raise_mark(&marks.c_version, CL_MAKE_VERSION(major, minor, 0));
}

void usage_note_recipe(const struct recipe *recipe)
{
    if (recipe->kind == RECIPE_SOURCE)
        note_source(recipe);
    if (recipe->options)
        note_options(recipe->options);
    raise_flag(&marks.il, recipe->kind == RECIPE_IL);
    for (uint32_t i = 0; i < recipe->input_count; i++)
        usage_note_recipe(recipe->inputs[i]);
}

void usage_note_image(const struct image_shape *shape)
{
    const cl_image_desc *desc = &shape->desc;
    raise_flag(&marks.images, true);
    switch (desc->image_type) {
    case CL_MEM_OBJECT_IMAGE3D:
        raise_mark(&marks.image3d[0], desc->image_width);
        raise_mark(&marks.image3d[1], desc->image_height);
        raise_mark(&marks.image3d[2], desc->image_depth);
        break;
    case CL_MEM_OBJECT_IMAGE1D_BUFFER:
        raise_mark(&marks.image_buffer, desc->image_width);
        break;
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
        raise_mark(&marks.image2d[0], desc->image_width);
        raise_mark(&marks.image_array, desc->image_array_size);
        break;
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
        raise_mark(&marks.image2d[0], desc->image_width);
        raise_mark(&marks.image2d[1], desc->image_height);
        raise_mark(&marks.image_array, desc->image_array_size);
        break;
    case CL_MEM_OBJECT_IMAGE1D:
        raise_mark(&marks.image2d[0], desc->image_width);
        break;
    default:
        raise_mark(&marks.image2d[0], desc->image_width);
        raise_mark(&marks.image2d[1], desc->image_height);
        break;
    }
}

void usage_note_object(uint64_t size)
{
    raise_mark(&marks.largest_object, size);
}

void usage_note_sub_buffer(uint64_t origin)
{
    raise_flag(&marks.sub_buffers, true);
    if (origin & ~atomic_load_explicit(&marks.origin_alignment, memory_order_relaxed))
        atomic_fetch_or_explicit(&marks.origin_alignment, origin, memory_order_relaxed);
}

void usage_note_subgroups(void)
{
    raise_flag(&marks.subgroups, true);
}

/* Bits: the largest power of two that divides every origin, which all share with their OR. */
static uint64_t alignment_bits(void)
{
    uint64_t origins = atomic_load(&marks.origin_alignment);
    if (!atomic_load(&marks.sub_buffers))
        return 0;
    /* All at 0: any alignment there is. */
    return origins ? (origins & -origins) * 8 : (uint64_t)1 << 62;
}

void usage_read(struct plan_use *ret)
{
    *ret = (struct plan_use){
        .work_group_size = atomic_load(&marks.work_group_size),
        .work_dimensions = (uint32_t)atomic_load(&marks.work_dimensions),
        .local_memory = atomic_load(&marks.local_memory),
        .largest_object = atomic_load(&marks.largest_object),
        .parameter_size = atomic_load(&marks.parameter_size),
        .origin_alignment = alignment_bits(),
        .images = atomic_load(&marks.images),
        .image_buffer = atomic_load(&marks.image_buffer),
        .image_array = atomic_load(&marks.image_array),
        .read_images = (uint32_t)atomic_load(&marks.read_images),
        .write_images = (uint32_t)atomic_load(&marks.write_images),
        .samplers = (uint32_t)atomic_load(&marks.samplers),
        .fp64 = atomic_load(&marks.fp64),
        .fp16 = atomic_load(&marks.fp16),
        .il = atomic_load(&marks.il),
        .non_uniform = atomic_load(&marks.non_uniform),
        .subgroups = atomic_load(&marks.subgroups),
        .extensions = extensions,
        .extension_count = atomic_load_explicit(&extension_count, memory_order_acquire),
        .c_version = (uint32_t)atomic_load(&marks.c_version),
    };
    for (int i = 0; i < 3; i++) {
        ret->work_item_sizes[i] = atomic_load(&marks.work_item_sizes[i]);
        ret->image3d[i] = atomic_load(&marks.image3d[i]);
    }
    for (int i = 0; i < 2; i++)
        ret->image2d[i] = atomic_load(&marks.image2d[i]);
}
