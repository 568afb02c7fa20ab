#include "tests/support/cases.h"
#include <errno.h>

#include "state/recipe/recipe.h"

/* A text in front of all source of a program, however that was put together. */

#define TEXT "int ours;\n#line 1\n"

static struct recipe *source(const char *text)
{
    struct recipe *recipe;
    cr_assert_eq(recipe_source(1, &text, NULL, &recipe), 0);
    return recipe;
}

static void expect_source(const struct recipe *recipe, const char *text)
{
    cr_assert_eq(recipe->kind, RECIPE_SOURCE);
    cr_expect_eq(recipe->size, strlen(text));
    cr_expect_str_eq(recipe->bytes, text);
}

Test(recipe, text_comes_in_front_of_what_is_built_and_its_headers_stay)
{
    struct recipe *leaf = source("#include \"h\"\n"), *built, *made;
    struct headers *headers = calloc(1, sizeof(*headers));
    cr_assert_eq(recipe_built(leaf, "-w -I/x/my-include", NULL, 0, &built), 0);
    cr_assert_eq(headers_add(headers, "/x/h", 0, "one", 3), 0);
    cr_assert_eq(headers_add(headers, "/x/y/h", 0, NULL, 0), 0);
    cr_assert_eq(headers_add(headers, "/x/i", 2, "", 0), 0);
    built->headers = headers;
    cr_assert_eq(recipe_prefixed(built, TEXT, &made), 0);
    cr_expect_eq(made->kind, RECIPE_BUILT);
    cr_expect_str_eq(made->options, "-w -I/x/my-include");
    expect_source(made->inputs[0], TEXT "#include \"h\"\n");
    cr_expect(headers_same(made->headers, headers));
    expect_source(leaf, "#include \"h\"\n");
    recipe_unref(built);
    recipe_unref(leaf);
    /* Its own, of which nothing was shared. */
    cr_expect_str_eq(made->headers->list[0].path, "/x/h");
    recipe_unref(made);
}

Test(recipe, text_comes_in_front_of_each_source_that_is_linked_and_of_no_header)
{
    struct recipe *main = source("a"), *header = source("h"), *other = source(""), *parts[2];
    struct recipe *linked, *made;
    const char *name = "h.h";
    cr_assert_eq(recipe_step(RECIPE_COMPILED, main, "-DA", 1, &header, &name, NULL, 0, &parts[0]),
                 0);
    cr_assert_eq(recipe_step(RECIPE_COMPILED, other, "", 0, NULL, NULL, NULL, 0, &parts[1]), 0);
    cr_assert_eq(recipe_linked(2, parts, "-cl-fast-relaxed-math", &linked), 0);
    cr_assert_eq(recipe_prefixed(linked, TEXT, &made), 0);
    cr_expect_eq(made->kind, RECIPE_LINKED);
    cr_expect_eq(made->depth, linked->depth);
    cr_expect_str_eq(made->options, "-cl-fast-relaxed-math");
    cr_assert_eq(made->input_count, 2);
    cr_expect_eq(made->inputs[0]->kind, RECIPE_COMPILED);
    cr_expect_str_eq(made->inputs[0]->options, "-DA");
    expect_source(made->inputs[0]->inputs[0], TEXT "a");
    expect_source(made->inputs[0]->inputs[1], "h");
    cr_expect_str_eq(made->inputs[0]->names[1], "h.h");
    expect_source(made->inputs[1]->inputs[0], TEXT);
    recipe_unref(made);
    recipe_unref(linked);
    recipe_unref(parts[0]);
    recipe_unref(parts[1]);
    recipe_unref(main);
    recipe_unref(header);
    recipe_unref(other);
}

Test(recipe, no_text_comes_in_front_of_il_and_of_what_options_include)
{
    const unsigned char module[20] = {3, 2, 0x23, 7};
    struct recipe *il, *built, *leaf = source("a"), *made = NULL;
    cr_assert_eq(recipe_il(module, sizeof(module), &il), 0);
    cr_assert_eq(recipe_built(il, "", NULL, 0, &built), 0);
    cr_expect_eq(recipe_prefixed(built, TEXT, &made), -ENOTSUP);
    recipe_unref(built);
    recipe_unref(il);
    cr_assert_eq(recipe_built(leaf, "-w -include x.h", NULL, 0, &built), 0);
    cr_expect_eq(recipe_prefixed(built, TEXT, &made), -ENOTSUP);
    cr_expect_null(made);
    recipe_unref(built);
    recipe_unref(leaf);
}
