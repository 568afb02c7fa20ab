#ifndef RESEAT_STATE_RECIPE_RECIPE_HASH_H
#define RESEAT_STATE_RECIPE_RECIPE_HASH_H

#include "state/base/bytes/content_hash.h"
#include "state/recipe/recipe.h"

/**
 * Add all that following @recipe depends on, but for the device: source or IL, options, headers as
 * they were kept, specialisation constants, and the steps. Options that differ in blanks alone are
 * the same ones.
 *
 * @prologue  What drivers get before each source. Not NULL.
 * Returns 0, -ENOMEM, or -ENOTSUP: the same recipe may make something else another time (headers
 * that were not all kept, a source that names the date or the time).
 */
MUST_CHECK int recipe_hash(const struct recipe *recipe, const char *prologue,
                           struct content_hash *hash);

#endif
