package reseat.stream;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.concurrent.Flow;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.UnaryOperator;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import reseat.stream.ReseatException.Reason;

/**
 * A kernel on a device, as a function from records to answers. Each record of {@link #inputSize} bytes gets one answer of
 * {@link #outputSize} bytes. Answers come in the order of the records, each exactly once, also
 * when the device is moved or lost, or the service is started again meanwhile.
 *
 * <p>A stream has one use at a time: a {@link #run}, an iteration of {@link #map}, a {@link #processor},
 * or {@link #slots} and {@link #answers}. Any thread may call any method. Calls of {@code run} by
 * several threads take turns. A new use discards the answers of an iteration that was not finished, whose next
 * call then throws {@link IllegalStateException}; while a processor, or records sent by {@link #send},
 * are on their way, a new use throws {@link IllegalStateException}. For several uses at once open several
 * streams.
 *
 * <p>Calls that wait end with a {@link ReseatException} when the thread is interrupted, or the timeout
 * of {@link Reseat.Builder#timeout} passes. Waiting takes no processor time.
 *
 * <p>The memory shared with the service is unmapped when the garbage collector finds its buffers unused, some time after
 * {@link #close}: Java has no other way. A buffer of {@code slots} or {@code answers} may thus be
 * used at any time without a crash, but has no meaning after the call that ends its use.
 */
public final class Accelerator implements UnaryOperator<byte[]>, AutoCloseable {
    /** The use of slots() and answers(). */
    private static final Object BY_HAND = new Object();

    private final RecordStream stream;
    private final ReentrantLock turn = new ReentrantLock();
    private volatile Object use = BY_HAND;
    private volatile ByteBuffer given; /* By slots(). */

    Accelerator(RecordStream stream) {
        this.stream = stream;
    }

    /**
     * The size of a record.
     *
     * @return bytes
     */
    public int inputSize() {
        return stream.input;
    }

    /**
     * The size of an answer.
     *
     * @return bytes
     */
    public int outputSize() {
        return stream.output;
    }

    /**
     * How many records can be on their way at once.
     *
     * @return records; may be another number after the service was started again
     */
    public int capacity() {
        return stream.capacity();
    }

    /**
     * The stream's name, for {@code reseat ps}, {@code move}, {@code suspend} and {@code explain}.
     *
     * @return the name; may be another one after the service was started again
     */
    public String program() {
        return stream.program();
    }

    /**
     * Do records go through memory shared with the service?
     *
     * @return false: through the socket
     */
    public boolean isShared() {
        return stream.isShared();
    }

    /* ---- a whole batch ---- */

    /**
     * Answer a batch of records. Blocks until all are answered.
     *
     * @param records whole records, one behind the other
     * @return their answers, one behind the other
     * @throws IllegalArgumentException {@code records} is not a multiple of {@link #inputSize}
     * @throws ReseatException          the answers that came are lost; the records can be given again
     */
    public byte[] run(byte[] records) {
        long size = checkWhole(records.length) * (long) stream.output;
        byte[] answers = new byte[Math.toIntExact(size)];
        run(ByteBuffer.wrap(records), ByteBuffer.wrap(answers));
        return answers;
    }

    /**
     * As {@link #run(byte[])}, for {@link Stream#map}: each element is a batch of whole records. An
     * element is sent when the one before it is answered, so use {@link #map(Stream, Codec)} for small elements.
     */
    @Override
    public byte[] apply(byte[] records) {
        return run(records);
    }

    /**
     * Answer a batch of records. Blocks until all are answered. Packs and unpacks in the caller's thread, while the
     * device works.
     *
     * @param records whole records from its position to its limit; the position advances with what is
     *                sent
     * @param answers where the answers go, from its position on; the position advances with what came
     * @throws IllegalArgumentException {@code records} is not a multiple of {@link #inputSize}, or
     *                                  {@code answers} has too little room
     * @throws ReseatException          the positions say how far it came
     */
    public void run(ByteBuffer records, ByteBuffer answers) {
        int count = checkWhole(records.remaining());
        if ((long) count * stream.output > answers.remaining())
            throw new IllegalArgumentException(count + " answers have " + (long) count * stream.output
                    + " bytes; there is room for " + answers.remaining());
        takeTurn();
        try {
            begin(records);
            for (int left = count; left > 0;) {
                int sent = sendSome(records);
                int came = takeSome(answers);
                left -= came;
                if (sent == 0 && came == 0)
                    stream.await(() -> stream.hasAnswers() || records.hasRemaining() && stream.hasRoom());
            }
        } finally {
            turn.unlock();
        }
    }

    private int sendSome(ByteBuffer records) {
        if (!records.hasRemaining())
            return 0;
        ByteBuffer slots = stream.claim(Integer.MAX_VALUE);
        int size = Math.min(slots.remaining(), records.remaining());
        if (size == 0)
            return 0;
        int limit = records.limit();
        slots.put(records.limit(records.position() + size));
        records.limit(limit);
        stream.send(slots, size / stream.input);
        return size / stream.input;
    }

    private int takeSome(ByteBuffer answers) {
        ByteBuffer some = stream.answers(Integer.MAX_VALUE);
        int count = some.remaining() / stream.output;
        if (count == 0)
            return 0;
        answers.put(some);
        stream.release(count);
        return count;
    }

    private int checkWhole(int size) {
        if (size % stream.input != 0)
            throw new IllegalArgumentException(size + " bytes are no whole number of records; "
                    + "this kernel's records have " + stream.input + " bytes");
        return size / stream.input;
    }

    /* ---- record by record ---- */

    /**
     * Answer records lazily, in order. {@code next} packs records while there is room, up to
     * {@link #capacity} ahead of the answers, and blocks while no answer is there. An exception of {@code records} or
     * {@code codec} comes out of {@code next} or {@code hasNext}; a record that could not be packed is
     * left out.
     *
     * <p>The iterator is for one thread. Where {@code records} blocks for long, answers wait with it: use
     * {@link #processor} then.
     *
     * @param <T>     what records are made of
     * @param <R>     what answers become
     * @param records read only as answers are asked for
     * @param codec   packs and unpacks in the thread that asks
     * @return the answers
     */
    public <T, R> Iterator<R> map(Iterator<? extends T> records, Codec<? super T, ? extends R> codec) {
        RecordIterator<T, R> iterator = new RecordIterator<>(records, codec);
        takeTurn();
        try {
            begin(iterator);
        } finally {
            turn.unlock();
        }
        return iterator;
    }

    /**
     * As {@link #map(Iterator, Codec)}, of byte arrays with one record each.
     *
     * @param records arrays of {@link #inputSize} bytes
     * @return arrays of {@link #outputSize} bytes
     */
    public Iterator<byte[]> map(Iterator<byte[]> records) {
        return map(records, Codec.bytes());
    }

    /**
     * As {@link #map(Iterator, Codec)}; each iteration begins anew.
     *
     * @param <T>     what records are made of
     * @param <R>     what answers become
     * @param records iterated once for each iteration of the answers
     * @param codec   packs and unpacks in the thread that asks
     * @return the answers
     */
    public <T, R> Iterable<R> map(Iterable<? extends T> records, Codec<? super T, ? extends R> codec) {
        return () -> map(records.iterator(), codec);
    }

    /**
     * As {@link #map(Iterator, Codec)}; begins when the returned stream does.
     *
     * @param <T>     what records are made of
     * @param <R>     what answers become
     * @param records consumed; closed with the returned stream
     * @param codec   packs and unpacks in the thread that asks
     * @return the answers: an ordered, sequential stream
     */
    public <T, R> Stream<R> map(Stream<? extends T> records, Codec<? super T, ? extends R> codec) {
        return StreamSupport.<R>stream(() -> Spliterators.spliteratorUnknownSize(
                this.<T, R>map(records.iterator(), codec), Spliterator.ORDERED), Spliterator.ORDERED, false)
                .onClose(records::close);
    }

    private final class RecordIterator<T, R> implements Iterator<R> {
        private final Iterator<? extends T> records;
        private final Codec<? super T, ? extends R> codec;
        private ByteBuffer answers; /* Not yet unpacked. */
        private int held; /* Answers to release when they are. */

        RecordIterator(Iterator<? extends T> records, Codec<? super T, ? extends R> codec) {
            this.records = Objects.requireNonNull(records);
            this.codec = Objects.requireNonNull(codec);
        }

        @Override
        public boolean hasNext() {
            if (answers != null && answers.hasRemaining() && use == this)
                return true; // Without the lock, which costs more than the rest.
            takeTurn();
            try {
                return fill();
            } finally {
                turn.unlock();
            }
        }

        @Override
        public R next() {
            takeTurn();
            try {
                if (!fill())
                    throw new NoSuchElementException();
                int end = answers.position() + stream.output;
                int limit = answers.limit();
                try {
                    return codec.unpack(answers.limit(end));
                } finally {
                    answers.limit(limit).position(end);
                }
            } finally {
                turn.unlock();
            }
        }

        /** Have answers. False: there are no more. */
        private boolean fill() {
            if (use != this)
                throw new IllegalStateException("this iteration ended when another use of the stream began");
            if (answers != null && answers.hasRemaining())
                return true;
            releaseHeld();
            for (;;) {
                boolean more = records.hasNext();
                boolean packed = more && packSome();
                answers = stream.answers(Integer.MAX_VALUE);
                held = answers.remaining() / stream.output;
                if (held > 0)
                    return true;
                if (!more && stream.inFlight() == 0)
                    return false;
                if (!packed)
                    stream.await(() -> stream.hasAnswers() || more && stream.hasRoom());
            }
        }

        private void releaseHeld() {
            if (held == 0)
                return;
            stream.release(held);
            held = 0;
        }

        private boolean packSome() {
            ByteBuffer slots = stream.claim(Integer.MAX_VALUE);
            int all = slots.remaining() / stream.input;
            int count = 0;
            try {
                while (count < all && records.hasNext()) {
                    pack(codec, records.next(), slots, count);
                    count++;
                }
            } finally {
                if (count > 0)
                    stream.send(slots, count);
            }
            return count > 0;
        }
    }

    private <T> void pack(Codec<? super T, ?> codec, T value, ByteBuffer slots, int index) {
        int at = index * stream.input;
        slots.limit(at + stream.input).position(at);
        codec.pack(value, slots);
        if (slots.hasRemaining())
            throw new IllegalArgumentException("the codec packed " + (slots.position() - at)
                    + " bytes; this kernel's records have " + stream.input);
    }

    /* ---- with back-pressure ---- */

    /**
     * Answer what a publisher publishes. It is asked for at most {@link #capacity} records ahead of the
     * answers that the subscriber has been given, so a slow subscriber slows the publisher down.
     *
     * <p>Records are packed in the publisher's thread, which is not blocked. Answers are unpacked in, and given to the
     * subscriber by, a thread of the processor's own. It has one subscriber and is used once. The
     * subscriber gets what was answered before an error. After {@code cancel} the stream can be
     * used again when the publisher has seen it.
     *
     * @param <T>   what records are made of
     * @param <R>   what answers become
     * @param codec packs in one thread and unpacks in another one
     * @return a processor, to be subscribed to a publisher and to
     */
    public <T, R> Flow.Processor<T, R> processor(Codec<? super T, ? extends R> codec) {
        RecordProcessor<T, R> processor = new RecordProcessor<>(codec);
        takeTurn();
        try {
            begin(processor);
        } finally {
            turn.unlock();
        }
        return processor;
    }

    private final class RecordProcessor<T, R> implements Flow.Processor<T, R>, Flow.Subscription {
        private final Codec<? super T, ? extends R> codec;
        /* The monitor of this object guards these; the lock of `stream` is taken after it. The two flags are read
         * under that lock as well. */
        private Flow.Subscriber<? super R> subscriber;
        private volatile Flow.Subscription publisher;
        private long demand;
        private volatile boolean complete; /* The publisher has no more. */
        private volatile boolean ended; /* Nothing more is published or taken. */
        private Throwable error;

        RecordProcessor(Codec<? super T, ? extends R> codec) {
            this.codec = Objects.requireNonNull(codec);
        }

        @Override
        public void subscribe(Flow.Subscriber<? super R> wanted) {
            Objects.requireNonNull(wanted);
            synchronized (this) {
                if (subscriber == null) {
                    subscriber = wanted;
                    startIfReady();
                    return;
                }
            }
            wanted.onSubscribe(new Flow.Subscription() {
                @Override
                public void request(long count) {
                }

                @Override
                public void cancel() {
                }
            });
            wanted.onError(new IllegalStateException("this processor has a subscriber already"));
        }

        @Override
        public void onSubscribe(Flow.Subscription from) {
            synchronized (this) {
                if (publisher == null) {
                    publisher = from;
                    startIfReady();
                    return;
                }
            }
            from.cancel();
        }

        private void startIfReady() {
            if (subscriber == null || publisher == null)
                return;
            Thread thread = new Thread(this::publish, "reseat-stream-answers");
            thread.setDaemon(true);
            thread.start();
        }

        @Override
        public void onNext(T value) {
            try {
                Objects.requireNonNull(value);
                if (ended)
                    return;
                ByteBuffer slots = stream.claim(1);
                boolean room = slots.hasRemaining();
                if (!room) // The service was started again, and has smaller rings or is not there yet.
                    slots = ByteBuffer.allocate(stream.input).order(ByteOrder.LITTLE_ENDIAN);
                pack(codec, value, slots, 0);
                if (room)
                    stream.send(slots, 1);
                else
                    stream.add(slots.flip());
            } catch (RuntimeException e) {
                fail(e);
            }
        }

        @Override
        public void onError(Throwable thrown) {
            fail(thrown);
        }

        @Override
        public void onComplete() {
            synchronized (this) {
                complete = true;
                notifyAll();
            }
            stream.wake();
        }

        /** Give what is answered to the subscriber, then @thrown. */
        private void fail(Throwable thrown) {
            synchronized (this) {
                error = error == null ? thrown : error;
                complete = true;
                notifyAll();
            }
            publisher.cancel();
            stream.wake();
        }

        @Override
        public void request(long count) {
            synchronized (this) {
                demand = demand + count < 0 ? Long.MAX_VALUE : demand + Math.max(0, count);
                notifyAll();
            }
            if (count <= 0)
                fail(new IllegalArgumentException("request(" + count + ")"));
        }

        @Override
        public void cancel() {
            synchronized (this) {
                ended = true;
                notifyAll();
            }
            publisher.cancel();
            stream.wake();
        }

        /** The body of the thread that publishes. */
        private void publish() {
            try {
                subscriber.onSubscribe(this);
                publisher.request(stream.capacity());
                for (;;) {
                    long most = awaitDemand();
                    if (most < 0)
                        return;
                    stream.await(() -> ended || stream.hasAnswers() || isDone());
                    publishSome((int) Math.min(most, Integer.MAX_VALUE));
                    if (isDone())
                        break;
                }
            } catch (RuntimeException e) {
                synchronized (this) {
                    error = error == null ? e : error;
                }
                publisher.cancel();
            }
            finish();
        }

        /** The number of answers that the subscriber wants; 0: it may be told the end; -1: it wants nothing more. */
        private synchronized long awaitDemand() {
            try {
                while (demand == 0 && !ended && !isDone())
                    wait();
            } catch (InterruptedException e) {
                throw new ReseatException(Reason.INTERRUPTED, "the thread of the answers was interrupted");
            }
            return ended ? -1 : demand;
        }

        private boolean isDone() {
            return complete && stream.inFlight() == 0;
        }

        private void publishSome(int most) {
            ByteBuffer answers = stream.answers(Math.max(1, most));
            int all = answers.remaining();
            int count = 0;
            try {
                for (int at = 0; at < all; at += stream.output) {
                    synchronized (this) {
                        if (ended || demand == 0)
                            break;
                        demand -= demand == Long.MAX_VALUE ? 0 : 1;
                    }
                    R answer = codec.unpack(answers.limit(at + stream.output).position(at));
                    count++;
                    subscriber.onNext(answer);
                }
            } finally {
                if (count > 0)
                    stream.release(count);
            }
            if (count > 0)
                publisher.request(count);
        }

        private void finish() {
            Throwable why;
            synchronized (this) {
                if (ended)
                    return;
                ended = true;
                why = error;
            }
            if (why != null)
                subscriber.onError(why);
            else
                subscriber.onComplete();
        }

        boolean isUnderWay() {
            return publisher != null && !ended;
        }
    }

    /* ---- by hand, without a copy ---- */

    /**
     * Free slots to write records into, which are the memory that the device is written from. Blocks
     * until there is one.
     *
     * <p>One thread may use {@code slots} and {@link #send} while another one uses {@link #answers} and
     * {@link #release}. Whoever does both in one thread must not have {@link #capacity} records on
     * their way when it asks for slots: it would wait for ever, or for the timeout.
     *
     * @return room for one record or more, and at most for as many as the service would have sent at a
     *         time; little-endian, valid until the next {@code send} or {@code slots}
     */
    public ByteBuffer slots() {
        byHand();
        for (;;) {
            ByteBuffer slots = stream.claim(Integer.MAX_VALUE);
            if (slots.hasRemaining()) {
                given = slots.duplicate();
                return slots;
            }
            stream.await(stream::hasRoom);
        }
    }

    /**
     * Send the first records that were written into the buffer of {@link #slots}, wherever its
     * position is. Never blocks.
     *
     * @param records how many
     * @throws IllegalArgumentException there are not so many slots
     */
    public void send(int records) {
        byHand();
        if (records < 0 || given == null || records > given.remaining() / stream.input)
            throw new IllegalArgumentException(records + " records; slots() gave room for "
                    + (given == null ? 0 : given.remaining() / stream.input));
        if (records > 0)
            stream.send(given, records);
        given = null;
    }

    /**
     * The answers that are there. Blocks until there is one, if need be until another thread has
     * sent a record.
     *
     * @return one answer or more, and at most as many as the service would have released at a time;
     *         little-endian and read-only, valid until {@link #release}
     */
    public ByteBuffer answers() {
        byHand();
        for (;;) {
            ByteBuffer answers = stream.answers(Integer.MAX_VALUE);
            if (answers.hasRemaining())
                return answers;
            stream.await(stream::hasAnswers);
        }
    }

    /**
     * Give the room of answers back. Never blocks.
     *
     * @param answers how many, from the first one of {@link #answers} on
     * @throws IllegalArgumentException there are not so many
     */
    public void release(int answers) {
        byHand();
        if (answers < 0 || answers > stream.inFlight())
            throw new IllegalArgumentException(answers + " answers; " + stream.inFlight() + " are on their way");
        stream.release(answers);
    }

    private void byHand() {
        if (use == BY_HAND)
            return;
        takeTurn();
        try {
            begin(BY_HAND);
        } finally {
            turn.unlock();
        }
    }

    /* ---- uses ---- */

    private void takeTurn() {
        try {
            turn.lockInterruptibly();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new ReseatException(Reason.INTERRUPTED, "interrupted while another thread uses the stream");
        }
    }

    /** Begin a use, and discard what an unfinished iteration or run() has on its way. */
    private void begin(Object next) {
        if (use instanceof RecordProcessor<?, ?> processor && processor.isUnderWay())
            throw new IllegalStateException("a processor uses the stream; cancel it, or open another stream");
        if (use == BY_HAND && next != BY_HAND && stream.inFlight() > 0)
            throw new IllegalStateException(stream.inFlight() + " records that send() sent are on their "
                    + "way; take their answers first, or open another stream");
        use = null;
        given = null;
        while (stream.inFlight() > 0) {
            int count = stream.answers(Integer.MAX_VALUE).remaining() / stream.output;
            if (count > 0)
                stream.release(count);
            else
                stream.await(stream::hasAnswers);
        }
        use = next;
    }

    /**
     * End the stream and give up its device memory. Threads that wait in other calls get a
     * {@link ReseatException}; records that are not answered are dropped. May be called twice, from
     * any thread. Does not block.
     */
    @Override
    public void close() {
        stream.close();
    }
}
