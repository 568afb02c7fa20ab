#ifndef RESEAT_STATE_RECIPE_RECIPE_H
#define RESEAT_STATE_RECIPE_RECIPE_H

#include <CL/cl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"
#include "state/recipe/headers.h"

/*
 * How a program was made, in terms that every device understands: source or IL, and the steps
 * applied to it. Recipes are immutable and shared: that of a library is part of every program
 * linked with it.
 */

enum recipe_kind {
    RECIPE_SOURCE = 1, /**< clCreateProgramWithSource: the text. */
    RECIPE_IL,         /**< clCreateProgramWithIL: the module. */
    RECIPE_COMPILED,   /**< clCompileProgram of inputs[0], with inputs[1..] as headers. */
    RECIPE_LINKED,     /**< clLinkProgram of inputs[]. */
    RECIPE_BUILT,      /**< clBuildProgram of inputs[0]. */
};

/** Most nested steps: deeper ones are refused, so that replays can recurse. */
#define RECIPE_DEPTH_MAX 64

/** A value of clSetProgramSpecializationConstant. */
struct recipe_constant {
    cl_uint id;
    uint32_t size;
    unsigned char bytes[8]; /**< Room for any scalar that SPIR-V can specialise. */
};

struct recipe {
    _Atomic uint32_t refs;
    enum recipe_kind kind;
    uint32_t depth; /**< 1 for SOURCE and IL. */
    char *bytes;    /**< SOURCE, IL: owned; a NUL that @size does not count follows. */
    size_t size;
    char *options; /**< As the program gave them, "" for NULL. NULL for SOURCE and IL. Owned. */
    struct recipe **inputs; /**< A reference to each. */
    char **names; /**< COMPILED: the include name of each header; names[0] is NULL. Owned. */
    uint32_t input_count;
    struct recipe_constant *constants; /**< COMPILED and BUILT, of an IL base. Owned. */
    uint32_t constant_count;
    struct headers *headers; /**< COMPILED and BUILT, from source: the headers from the disk. NULL:
                                none. Owned. */
};

/** Nothing else of a recipe ever changes. */
static inline struct recipe *recipe_ref(const struct recipe *recipe)
{
    struct recipe *counted = (struct recipe *)(uintptr_t)recipe;
    atomic_fetch_add_explicit(&counted->refs, 1, memory_order_relaxed);
    return counted;
}
void recipe_unref(struct recipe *recipe); /**< NULL is allowed. */
void recipe_unref_pointer(struct recipe **recipe);
/** Release what @recipe owns, if it is not on the heap. */
void recipe_finish(struct recipe *recipe);

/*
 * Each creator copies what it is given, refers to the inputs and returns the recipe with one
 * reference. 0, -ENOMEM, or -E2BIG (RECIPE_DEPTH_MAX).
 */

/** The strings concatenated. @lengths may be NULL, and 0 in it means a string that ends with a NUL.
 */
MUST_CHECK int recipe_source(cl_uint count, const char *const *strings, const size_t *lengths,
                             struct recipe **ret_recipe);
MUST_CHECK int recipe_il(const void *bytes, size_t size, struct recipe **ret_recipe);
/** COMPILED: @more are the headers, and @names[i] belongs to @more[i]. Of other kinds @names is not
 * read. */
MUST_CHECK int recipe_step(enum recipe_kind kind, struct recipe *base, const char *options,
                           uint32_t count, struct recipe *const *more, const char *const *names,
                           const struct recipe_constant *constants, uint32_t constant_count,
                           struct recipe **ret_recipe);
/** The same step as @recipe, without its headers from the disk, with other inputs of the same
 * number. */
MUST_CHECK int recipe_again(const struct recipe *recipe, const char *options,
                            struct recipe *const *inputs, struct recipe **ret_recipe);
MUST_CHECK static inline int recipe_linked(uint32_t count, struct recipe *const *inputs,
                                           const char *options, struct recipe **ret_recipe)
{
    return recipe_step(RECIPE_LINKED, inputs[0], options, count - 1, inputs + 1, NULL, NULL, 0,
                       ret_recipe);
}
MUST_CHECK static inline int recipe_built(struct recipe *base, const char *options,
                                          const struct recipe_constant *constants,
                                          uint32_t constant_count, struct recipe **ret_recipe)
{
    return recipe_step(RECIPE_BUILT, base, options, 0, NULL, NULL, constants, constant_count,
                       ret_recipe);
}

/**
 * The same steps with the same headers, with @text before all source that is compiled; @text ends
 * with "#line 1" if it should not change line numbers in compilers' messages. 0, -ENOMEM, or
 * -ENOTSUP: some input has no source, or an option includes a file before it.
 */
MUST_CHECK int recipe_prefixed(struct recipe *recipe, const char *text, struct recipe **ret_recipe);

/** Keep the files that this step includes from the disk now. Call before the recipe is shared.
 * 0 or -ENOMEM. */
MUST_CHECK int recipe_keep_headers(struct recipe *recipe);
/** False when the disk has changed since they were kept. */
bool recipe_headers_hold(const struct recipe *recipe);
/** True when it is compiled or built directly from source. */
bool recipe_is_of_source(const struct recipe *recipe);

/** False when no source so far contains printf; IL may. */
bool recipes_print(void);

/** The SOURCE or IL that it starts from, or NULL for what was linked. Borrowed. */
const struct recipe *recipe_origin(const struct recipe *recipe);
/** The recipe that is built for @recipe: an executable from a container is built again as it was,
 * whatever options the program gave then (5.8.3 leaves that to us). Borrowed. */
const struct recipe *recipe_executed(const struct recipe *recipe);
/** True when both make the same program: same inputs, same step, same options. */
bool recipe_same(const struct recipe *a, const struct recipe *b);
/**
 * False when program-scope variables that a driver reports can only be constants: some drivers
 * count those too, and OpenCL C has no others before 2.0.
 */
bool recipe_may_keep_variables(const struct recipe *recipe);
/** True when its program describes its kernels' parameters: some of its source was compiled with
 * -cl-kernel-arg-info, or it has IL, where the driver decides. */
bool recipe_tells_parameters(const struct recipe *recipe);
/** True when its own options ask for OpenCL C 2.0 or newer. */
bool recipe_asks_for_new_language(const struct recipe *recipe);
/** CL_PROGRAM_BINARY_TYPE of the program that it makes. */
cl_program_binary_type recipe_binary_type(const struct recipe *recipe);

struct content_hash; /* state/base/bytes/content_hash.h */
/**
 * Hash everything that the result of @recipe depends on, except the device: source or IL, options,
 * kept headers, specialisation constants, and the steps. Options that differ only in white space
 * are equal.
 *
 * @prologue  Text that drivers get before each source.
 * Returns 0, -ENOMEM, or -ENOTSUP: the same recipe may have another result at another time (headers
 * that were not all kept, a source that names the date or the time).
 */
MUST_CHECK int recipe_hash(const struct recipe *recipe, const char *prologue,
                           struct content_hash *hash);

#endif
