/** As roads_program.c, which is in the library that the argument names. */
class Roads {
    private static native int run();

    public static void main(String[] arguments) {
        System.load(arguments[0]);
        System.exit(run());
    }
}
